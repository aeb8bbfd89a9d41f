#include "measure/judge/validate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/host.h"
#include "base/status.h"
#include "measure/device/compare.h"
#include "measure/judge/defined_elements.h"
#include "measure/judge/inputs.h"
#include "measure/judge/timing.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::SamplePoint;
using search_space::Stage;
using search_space::TensorProgram;

// What memory is filled with, in words that mean the same in every type: not a number, and where
// fmax(NaN, x) = x would hide that, a large one (65504 in float16, 2.7e36 in the others of up to 32
// bits).
constexpr uint32_t kPoisonNan = 0x7fff7fff;
constexpr uint32_t kPoisonHuge = 0x7bff7bff;
// Devices allocate even numbers of bytes.
int64_t Even(int64_t bytes) { return (bytes + 1) / 2 * 2; }

int64_t BytesOf(const std::vector<BufferRef>& buffers) {
  int64_t bytes = 0;
  for (const BufferRef& buffer : buffers) bytes += Even(buffer->bytes()) + 2 * kGuardBytes;
  return bytes;
}

// Elements of a buffer in the host's memory, as they lie in the device's.
class Values {
 public:
  explicit Values(const BufferRef& of)
      : type_(of->dtype), bytes_(static_cast<size_t>(of->bytes())), count_(of->elements) {}
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  int64_t bytes() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t count() const { return count_; }
  DType type() const { return type_; }
  float operator[](int64_t offset) const { return ElementAt(data(), offset, type_); }
  void Set(int64_t offset, float value) { SetElement(data(), offset, type_, value); }

 private:
  DType type_;
  std::vector<char> bytes_;
  int64_t count_;
};

// "C[3, 17]" for a row-major offset.
std::string ElementName(const search_space::Buffer& buffer, int64_t offset) {
  std::vector<int64_t> index(buffer.shape.size());
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = offset % buffer.shape[d];
    offset /= buffer.shape[d];
  }
  return absl::StrCat(buffer.name, "[", absl::StrJoin(index, ", "), "]");
}

using Buffers = std::vector<std::unique_ptr<DeviceBuffer>>;

// One kind of inputs and what is expected of them.
struct Case {
  Sampled sampled;
  DefinedElements defined;
  std::vector<DeviceBuffer*> inputs;  // in declaration order
  // One an output. Candidates are compared with the device's copy, which one that goes astray may
  // have changed; the host's is out of their reach, and none is called wrong that agrees with it.
  std::vector<Values> expected;
  Buffers expected_there;
};

class DeviceValidator : public Validator {
 public:
  DeviceValidator(Device& device, const TensorProgram& program, const ValidateOptions& options)
      : device_(device),
        program_(program),
        l2_(options.l2),
        truncation_(Truncation(program, device.info().target)),
        inputs_(program, options.seed, truncation_),
        outputs_(OutputsOf(program)) {}

  absl::Status Initialise();
  absl::StatusOr<Workspaces> AllocateWorkspaces(absl::Span<const BufferRef> buffers) override;
  absl::Status SetReference(LoadedProgram& naive, Workspaces& workspaces) override;
  Verdict Validate(LoadedProgram& program, Workspaces& workspaces,
                   const std::set<std::string>& rounded_anew) override;
  std::vector<BufferSet> TimingSets(const Workspaces& workspaces) override;
  absl::Status PoisonTimingSets() override;
  Verdict CheckAfterTiming(bool all_sets) override;
  Verdict CheckFirstSet() override;
  absl::Status ChangeInputs(uint64_t seed, LoadedProgram& naive, Workspaces& workspaces) override;
  uint64_t seed() const override { return inputs_.seed(); }

 private:
  absl::Status AllocateSets();
  absl::StatusOr<Buffers> AllocateAll(const std::vector<BufferRef>& refs);
  absl::Status UploadInputs();
  absl::Status UploadExpected(const Case& which);

  BufferSet SetOf(const std::vector<DeviceBuffer*>& inputs, const Buffers& outputs,
                  const Workspaces& workspaces) const;
  // Runs a program on a case, on outputs poisoned unless `poison` is 0.
  absl::Status RunCase(LoadedProgram& program, const Case& which, Workspaces& workspaces,
                       uint32_t poison);
  absl::StatusOr<Values> Fetch(const DeviceBuffer& buffer, size_t output);
  absl::Status SetReference(LoadedProgram& naive, Case& which, Workspaces& workspaces);
  absl::Status CheckSamples(Case& which) const;
  absl::Status CheckComparison(const Case& which, size_t output);
  absl::Status CompareAsTheHost(const Case& which, size_t output);
  Verdict CompareOutputs(Case& which, const Buffers& outputs);
  Verdict CompareOutput(Case& which, const Buffers& outputs, size_t output);
  Verdict CheckRepetition(const char* when, const Buffers& outputs);
  // Has `again` the bits of the output that was validated?
  Verdict CheckSameBits(const DeviceBuffer& again, size_t output);
  Verdict ValidateOnce(LoadedProgram& program, Workspaces& workspaces);
  Verdict CheckGuards(const Workspaces* workspaces);
  Verdict RestoreAfter(Verdict verdict);
  absl::Status Restore();

  Device& device_;
  const TensorProgram& program_;
  const L2Policy l2_;
  const int threads_ = UsableCores();  // of the host
  const double truncation_;
  Inputs inputs_;
  std::vector<BufferRef> outputs_;
  std::vector<Case> cases_;  // the last one's inputs are those of the timing sets
  Buffers extra_inputs_;     // of the first case, when there are two
  std::vector<Buffers> set_inputs_, set_outputs_;
  Buffers validated_;                   // outputs of the program that was validated last
  std::set<std::string> rounded_anew_;  // of that program
};

Verdict FromStatus(const absl::Status& status) {
  return {OutcomeOf(status), std::string(status.message()), 0};
}

// ------------------------------------------------------------------------------- preparation

absl::Status DeviceValidator::Initialise() {
  HEDDLE_RETURN_IF_ERROR(CheckTypes(program_));
  const int64_t needed = MemoryNeeded(program_);
  HEDDLE_ASSIGN_OR_RETURN(free, device_.FreeMemory());
  if (needed > free) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s needs %.2f GB on %s, which has %.2f GB free: choose a smaller shape",
                        program_.op, needed / 1e9, device_.info().id, free / 1e9));
  }
  HEDDLE_ASSIGN_OR_RETURN(chosen, inputs_.Choose());
  for (const Sampled& sampled : chosen) {
    cases_.push_back({sampled, DefinedElements(program_, inputs_, sampled, threads_), {}, {}, {}});
  }
  HEDDLE_RETURN_IF_ERROR(AllocateSets());
  return UploadInputs();
}

absl::StatusOr<Buffers> DeviceValidator::AllocateAll(const std::vector<BufferRef>& refs) {
  Buffers buffers;
  for (const BufferRef& ref : refs) {
    HEDDLE_ASSIGN_OR_RETURN(buffer, device_.Allocate(Even(ref->bytes())));
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

absl::Status DeviceValidator::AllocateSets() {
  HEDDLE_ASSIGN_OR_RETURN(free, device_.FreeMemory());
  const int64_t bytes = BytesOf(program_.inputs) + BytesOf(outputs_);
  // Half of what is left over stays free for the workspaces of candidates.
  const int64_t spare = (free - MemoryNeeded(program_)) / 2 + bytes;
  const int count = BufferSetsOf(program_, l2_, device_.info().target.l2_bytes, spare);
  for (int i = 0; i < count; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(inputs, AllocateAll(program_.inputs));
    HEDDLE_ASSIGN_OR_RETURN(outputs, AllocateAll(outputs_));
    set_inputs_.push_back(std::move(inputs));
    set_outputs_.push_back(std::move(outputs));
  }
  for (const auto& buffer : set_inputs_[0]) cases_.back().inputs.push_back(buffer.get());
  if (cases_.size() > 1) {
    HEDDLE_ASSIGN_OR_RETURN(extra, AllocateAll(program_.inputs));
    extra_inputs_ = std::move(extra);
    for (const auto& buffer : extra_inputs_) cases_[0].inputs.push_back(buffer.get());
  }
  HEDDLE_ASSIGN_OR_RETURN(validated, AllocateAll(outputs_));
  validated_ = std::move(validated);
  for (Case& which : cases_) {
    HEDDLE_ASSIGN_OR_RETURN(expected, AllocateAll(outputs_));
    which.expected_there = std::move(expected);
  }
  return absl::OkStatus();
}

absl::Status DeviceValidator::UploadInputs() {
  for (const Case& which : cases_) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const BufferRef& ref = program_.inputs[i];
      HEDDLE_ASSIGN_OR_RETURN(host, device_.AllocateHost(ref->bytes()));
      Parallel(ref->elements, threads_, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          SetElement(host->data(), k, ref->dtype,
                     inputs_.At(which.sampled.kind, static_cast<int>(i), k));
        }
      });
      HEDDLE_RETURN_IF_ERROR(device_.Upload(*which.inputs[i], host->data(), ref->bytes()));
    }
  }
  for (size_t set = 1; set < set_inputs_.size(); ++set) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      HEDDLE_RETURN_IF_ERROR(device_.Copy(*set_inputs_[0][i], *set_inputs_[set][i]));
    }
  }
  return absl::OkStatus();
}

absl::Status DeviceValidator::UploadExpected(const Case& which) {
  for (size_t o = 0; o < which.expected.size(); ++o) {
    const Values& from = which.expected[o];
    HEDDLE_RETURN_IF_ERROR(device_.Upload(*which.expected_there[o], from.data(), from.bytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Workspaces> DeviceValidator::AllocateWorkspaces(absl::Span<const BufferRef> refs) {
  Workspaces workspaces;
  for (const BufferRef& ref : refs) {
    HEDDLE_ASSIGN_OR_RETURN(buffer, device_.Allocate(Even(ref->bytes())));
    workspaces.emplace_back(ref->name, std::move(buffer));
  }
  return workspaces;
}

BufferSet DeviceValidator::SetOf(const std::vector<DeviceBuffer*>& inputs, const Buffers& outputs,
                                 const Workspaces& workspaces) const {
  BufferSet set;
  for (size_t i = 0; i < inputs.size(); ++i) set[program_.inputs[i]->name] = inputs[i];
  for (size_t o = 0; o < outputs.size(); ++o) set[outputs_[o]->name] = outputs[o].get();
  for (const auto& [name, buffer] : workspaces) set[name] = buffer.get();
  return set;
}

// -------------------------------------------------------------------------------- validation

absl::Status DeviceValidator::RunCase(LoadedProgram& program, const Case& which,
                                      Workspaces& workspaces, uint32_t poison) {
  const Buffers& outputs = set_outputs_[0];
  if (poison != 0) {
    for (const auto& buffer : outputs) {
      HEDDLE_RETURN_IF_ERROR(device_.Fill(*buffer, poison));
    }
    for (const auto& [name, buffer] : workspaces) {
      HEDDLE_RETURN_IF_ERROR(device_.Fill(*buffer, poison));
    }
  }
  if (program.resources().shared_bytes > 0) {
    const uint32_t shared = poison != 0 ? poison : kPoisonNan;
    HEDDLE_RETURN_IF_ERROR(device_.FillShared(shared));
  }
  return device_.Run(program, SetOf(which.inputs, outputs, workspaces));
}

absl::StatusOr<Values> DeviceValidator::Fetch(const DeviceBuffer& buffer, size_t output) {
  Values values(outputs_[output]);
  HEDDLE_RETURN_IF_ERROR(device_.Download(buffer, values.data(), values.bytes()));
  return values;
}

absl::Status DeviceValidator::CheckSamples(Case& which) const {
  for (const SamplePoint& sample : which.sampled.samples) {
    const float got = which.expected[sample.output][sample.offset];
    const Allowed& allowed = which.sampled.allowed[sample.output];
    const auto expected = static_cast<float>(sample.value);
    if (ErrorOf(Distance(got, expected, allowed.slack), allowed.absolute) <= 1) continue;
    // What its own rounding errors swallow has no part in `allowed`.
    const double own = allowed.absolute > 0 && !sample.exact ? sample.magnitude : 0;
    if (Distance(got, expected, 0) <= Tolerance(program_, own)) continue;
    if (which.defined.AllowTurned(sample, got)) continue;
    // Sums that are too long for float32 are nobody's fault.
    const bool rounding = Distance(got, expected, 0) <= LongestLoss(program_, sample.magnitude);
    return absl::FailedPreconditionError(absl::StrFormat(
        "the naive program is wrong on %s: %s is %.9g, its definition gives %.9g (tolerance %.3g, "
        "%s inputs, seed %d): %s",
        device_.info().id, ElementName(*outputs_[sample.output], sample.offset), got, sample.value,
        ToleranceAt(allowed, expected), NameOf(which.sampled.kind), inputs_.seed(),
        rounding ? "float32 may lose as much in sums of this length: choose a smaller shape; where "
                   "that is wrong, too, driver, compiler or generator is broken"
                 : "driver, compiler or generator is broken"));
  }
  return absl::OkStatus();
}

absl::Status DeviceValidator::CompareAsTheHost(const Case& which, size_t output) {
  const DeviceBuffer& there = *set_outputs_[0][output];
  const Values& expected = which.expected[output];
  const int64_t count = expected.count();
  const double slack = which.sampled.allowed[output].slack;
  HEDDLE_ASSIGN_OR_RETURN(
      found, device_.Compare(there, *which.expected_there[output], count, slack, expected.type()));
  HEDDLE_ASSIGN_OR_RETURN(values, Fetch(there, output));
  const Difference right =
      DifferenceOf(values.data(), expected.data(), count, slack, threads_, expected.type());
  if (found == right) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s compares wrongly: of %d elements of %s it finds %d that differ, by %g at most; there are "
      "%d, by %g: driver or compiler is broken",
      device_.info().id, count, outputs_[output]->name, found.elements, found.distance,
      right.elements, right.distance));
}

// What the device's comparison does not see is served: it has to see what the host sees when
// nothing differs, when everything does, and when the last element alone does.
absl::Status DeviceValidator::CheckComparison(const Case& which, size_t output) {
  DeviceBuffer& there = *set_outputs_[0][output];
  HEDDLE_RETURN_IF_ERROR(CompareAsTheHost(which, output));
  HEDDLE_RETURN_IF_ERROR(device_.Fill(there, kPoisonHuge));
  HEDDLE_RETURN_IF_ERROR(CompareAsTheHost(which, output));
  Values changed = which.expected[output];
  const int64_t last = changed.count() - 1;
  changed.Set(last, changed[last] == 1 ? 2 : 1);
  HEDDLE_RETURN_IF_ERROR(device_.Upload(there, changed.data(), changed.bytes()));
  return CompareAsTheHost(which, output);
}

absl::Status DeviceValidator::SetReference(LoadedProgram& naive, Case& which,
                                           Workspaces& workspaces) {
  HEDDLE_RETURN_IF_ERROR(RunCase(naive, which, workspaces, kPoisonNan));
  which.expected.clear();
  for (size_t o = 0; o < outputs_.size(); ++o) {
    HEDDLE_ASSIGN_OR_RETURN(fetched, Fetch(*set_outputs_[0][o], o));
    which.expected.push_back(std::move(fetched));
    HEDDLE_RETURN_IF_ERROR(device_.Copy(*set_outputs_[0][o], *which.expected_there[o]));
  }
  absl::Status status = CheckSamples(which);
  for (size_t o = 0; status.ok() && o < outputs_.size(); ++o) status = CheckComparison(which, o);
  return status;
}

absl::Status DeviceValidator::SetReference(LoadedProgram& naive, Workspaces& workspaces) {
  for (Case& which : cases_) {
    HEDDLE_RETURN_IF_ERROR(SetReference(naive, which, workspaces));
  }
  return absl::OkStatus();
}

Verdict DeviceValidator::CompareOutput(Case& which, const Buffers& outputs, size_t output) {
  const DeviceBuffer& there = *outputs[output];
  const int64_t count = outputs_[output]->elements;
  const Allowed& allowed = which.sampled.allowed[output];
  auto difference = device_.Compare(there, *which.expected_there[output], count, allowed.slack,
                                    outputs_[output]->dtype);
  if (!difference.ok()) return FromStatus(difference.status());
  const double error = ErrorOf(difference->distance, allowed.absolute);
  if (error <= 1) return {Outcome::kOk, "", error};

  auto got = Fetch(there, output);
  if (!got.ok()) return FromStatus(got.status());
  const Values& expected = which.expected[output];
  const Mismatch found = FindMismatch(got->data(), expected.data(), count, allowed.absolute,
                                      allowed.slack, expected.type());
  if (found.elements == 0) {
    // An earlier candidate has written over the device's copy, and who knows over what else.
    if (absl::Status s = Restore(); !s.ok()) return FromStatus(s);
    return {Outcome::kOk, "", found.error};
  }
  if (which.defined.Allow(output, found, got->data())) {
    return {Outcome::kOk, "", found.error_of_others};
  }
  return {Outcome::kWrongAnswer,
          absl::StrFormat("%s is %.9g, expected %.9g (tolerance %.3g, %s inputs, seed %d); %d of "
                          "%d elements are wrong",
                          ElementName(*outputs_[output], found.worst), (*got)[found.worst],
                          expected[found.worst], ToleranceAt(allowed, expected[found.worst]),
                          NameOf(which.sampled.kind), inputs_.seed(), found.elements, count),
          found.error};
}

Verdict DeviceValidator::CompareOutputs(Case& which, const Buffers& outputs) {
  Verdict all;
  for (size_t o = 0; o < outputs_.size() && all.outcome == Outcome::kOk; ++o) {
    Verdict verdict = CompareOutput(which, outputs, o);
    verdict.max_error = std::max(verdict.max_error, all.max_error);
    all = std::move(verdict);
  }
  return all;
}

Verdict DeviceValidator::CheckRepetition(const char* when, const Buffers& outputs) {
  Verdict all;
  for (size_t o = 0; o < outputs_.size(); ++o) {
    Verdict verdict = rounded_anew_.contains(outputs_[o]->name)
                          ? CompareOutput(cases_.back(), outputs, o)
                          : CheckSameBits(*outputs[o], o);
    verdict.max_error = std::max(verdict.max_error, all.max_error);
    all = std::move(verdict);
    if (all.outcome == Outcome::kWrongAnswer) {
      all.detail = absl::StrCat(when, ", ", all.detail);
    }
    if (all.outcome != Outcome::kOk) break;
  }
  return all;
}

Verdict DeviceValidator::CheckSameBits(const DeviceBuffer& again, size_t output) {
  const int64_t count = outputs_[output]->elements;
  auto difference =
      device_.Compare(again, *validated_[output], count, /*slack=*/0, outputs_[output]->dtype);
  if (!difference.ok()) return FromStatus(difference.status());
  if (difference->elements == 0) return {};
  auto before = Fetch(*validated_[output], output), now = Fetch(again, output);
  if (!before.ok()) return FromStatus(before.status());
  if (!now.ok()) return FromStatus(now.status());
  // There is one before the last unless it is the last.
  const int64_t at = FirstDifference(before->data(), now->data(), count - 1, before->type());
  return {
      Outcome::kWrongAnswer,
      absl::StrFormat("the same inputs gave another result: %s was %.9g and is %.9g (a race, or "
                      "memory that was not written)",
                      ElementName(*outputs_[output], at), (*before)[at], (*now)[at]),
      0};
}

Verdict DeviceValidator::CheckGuards(const Workspaces* workspaces) {
  std::vector<std::pair<std::string, DeviceBuffer*>> buffers;
  for (const auto* set : {&set_outputs_.front(), &set_outputs_.back()}) {
    for (size_t o = 0; o < set->size(); ++o) {
      buffers.emplace_back(outputs_[o]->name, (*set)[o].get());
    }
  }
  for (const Case& which : cases_) {
    for (size_t i = 0; i < which.inputs.size(); ++i) {
      buffers.emplace_back(program_.inputs[i]->name, which.inputs[i]);
    }
  }
  if (workspaces != nullptr) {
    for (const auto& [name, buffer] : *workspaces) buffers.emplace_back(name, buffer.get());
  }
  Verdict verdict;
  for (const auto& [name, buffer] : buffers) {
    absl::StatusOr<bool> intact = device_.GuardsIntact(*buffer);
    if (!intact.ok()) return FromStatus(intact.status());
    if (*intact) continue;
    verdict = {Outcome::kIllegalAccess,
               absl::StrCat("written within ", kGuardBytes, " bytes outside of ", name), 0};
    if (absl::Status s = device_.RestoreGuards(*buffer); !s.ok()) return FromStatus(s);
  }
  return verdict;
}

Verdict DeviceValidator::ValidateOnce(LoadedProgram& program, Workspaces& workspaces) {
  double max_error = 0;
  const std::pair<Case*, uint32_t> runs[] = {{&cases_.front(), kPoisonNan},
                                             {&cases_.back(), kPoisonHuge}};
  for (const auto& [which, poison] : runs) {
    absl::Status status = RunCase(program, *which, workspaces, poison);
    if (!status.ok()) return FromStatus(status);
    Verdict verdict = CompareOutputs(*which, set_outputs_[0]);
    max_error = verdict.max_error = std::max(max_error, verdict.max_error);
    if (verdict.outcome != Outcome::kOk) return verdict;
  }
  absl::Status status;
  for (size_t o = 0; status.ok() && o < outputs_.size(); ++o) {
    status = device_.Copy(*set_outputs_[0][o], *validated_[o]);
  }
  if (status.ok()) status = RunCase(program, cases_.back(), workspaces, /*poison=*/0);
  if (!status.ok()) return FromStatus(status);
  Verdict verdict = CheckRepetition("run again", set_outputs_[0]);
  verdict.max_error = std::max(max_error, verdict.max_error);
  return verdict;
}

Verdict DeviceValidator::Validate(LoadedProgram& program, Workspaces& workspaces,
                                  const std::set<std::string>& rounded_anew) {
  rounded_anew_ = rounded_anew;
  Verdict verdict = ValidateOnce(program, workspaces);
  if (verdict.outcome == Outcome::kOk || verdict.outcome == Outcome::kWrongAnswer) {
    Verdict guards = CheckGuards(&workspaces);
    if (guards.outcome != Outcome::kOk) verdict = guards;
  }
  return RestoreAfter(std::move(verdict));
}

// What computes wrongly may have written anywhere: later candidates get everything afresh.
Verdict DeviceValidator::RestoreAfter(Verdict verdict) {
  if (verdict.outcome == Outcome::kWrongAnswer || verdict.outcome == Outcome::kIllegalAccess) {
    absl::Status restored = Restore();
    if (!restored.ok()) absl::StrAppend(&verdict.detail, "; then ", restored.message());
  }
  return verdict;
}

absl::Status DeviceValidator::Restore() {
  absl::Status status = UploadInputs();
  for (const Case& which : cases_) status.Update(UploadExpected(which));
  return status;
}

std::vector<BufferSet> DeviceValidator::TimingSets(const Workspaces& workspaces) {
  std::vector<BufferSet> sets;
  for (size_t i = 0; i < set_inputs_.size(); ++i) {
    std::vector<DeviceBuffer*> inputs;
    for (const auto& buffer : set_inputs_[i]) inputs.push_back(buffer.get());
    sets.push_back(SetOf(inputs, set_outputs_[i], workspaces));
  }
  return sets;
}

absl::Status DeviceValidator::PoisonTimingSets() {
  for (const Buffers* set : {&set_outputs_.front(), &set_outputs_.back()}) {
    for (const auto& buffer : *set) {
      HEDDLE_RETURN_IF_ERROR(device_.Fill(*buffer, kPoisonNan));
    }
  }
  return absl::OkStatus();
}

Verdict DeviceValidator::CheckAfterTiming(bool all_sets) {
  Verdict verdict = CheckRepetition("after timing", set_outputs_.front());
  if (verdict.outcome == Outcome::kOk && all_sets && set_outputs_.size() > 1) {
    verdict = CheckRepetition("after timing, on other buffers", set_outputs_.back());
  }
  if (verdict.outcome == Outcome::kOk) verdict = CheckGuards(nullptr);
  return RestoreAfter(std::move(verdict));
}

Verdict DeviceValidator::CheckFirstSet() {
  return RestoreAfter(CompareOutputs(cases_.back(), set_outputs_.front()));
}

absl::Status DeviceValidator::ChangeInputs(uint64_t seed, LoadedProgram& naive,
                                           Workspaces& workspaces) {
  const Inputs others(program_, seed, truncation_);
  std::vector<Sampled> sampled;
  for (const Case& which : cases_) {
    std::optional<Sampled> other = others.Sample(which.sampled.kind);
    if (!other) return Restore();
    sampled.push_back(*std::move(other));
  }
  inputs_ = others;
  for (size_t i = 0; i < cases_.size(); ++i) {
    cases_[i].defined = DefinedElements(program_, inputs_, sampled[i], threads_);
    cases_[i].sampled = std::move(sampled[i]);
  }
  HEDDLE_RETURN_IF_ERROR(UploadInputs());
  return SetReference(naive, workspaces);
}

}  // namespace

int64_t MemoryNeeded(const TensorProgram& program) {
  int64_t bytes = 2 * BytesOf(program.inputs) + 3 * BytesOf(OutputsOf(program));
  for (const Stage& stage : program.stages) bytes += BytesOf({stage.tensor});
  return bytes;
}

absl::StatusOr<std::unique_ptr<Validator>> Validator::Create(Device& device,
                                                             const TensorProgram& program,
                                                             const ValidateOptions& options) {
  auto validator = std::make_unique<DeviceValidator>(device, program, options);
  HEDDLE_RETURN_IF_ERROR(validator->Initialise());
  return validator;
}

}  // namespace heddle::measure
