#include "measure/judge/inputs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::SamplePoint;
using search_space::Stage;
using search_space::TensorProgram;

// Points of each output, evaluated in double precision, and a bound of the work that takes.
constexpr int64_t kSamples = 4096;
constexpr int64_t kSampleOperations = int64_t{1} << 26;
// Sums of integers up to here are exact in float32, with a factor of 4 for what was not sampled.
constexpr double kExactBelow = 1 << 22;

bool IsProduct(const Stage& stage) {
  return stage.is_reduction() && stage.combiner == search_space::Combiner::kProd;
}

// The share of kPowers that is not 1, so that the exponents of products, which walk at random, stay
// within some 22 in one of three, and within float32's 126 always, nearly.
double ShareOfPowers(const TensorProgram& program) {
  double terms = 1;
  for (const Stage& stage : program.stages) {
    if (!IsProduct(stage)) continue;
    for (const search_space::Var& axis : stage.reduce_axes) {
      terms *= static_cast<double>(axis->extent);
    }
  }
  return std::min(0.5, 512 / terms);
}

// Those in which one lost term of a reduction shows, the best one first.
std::vector<InputKind> TellingKinds(const TensorProgram& program) {
  std::vector<InputKind> kinds;
  const bool has_sums = HasSums(program);
  if (!has_sums) {
    if (std::any_of(program.stages.begin(), program.stages.end(), IsProduct)) {
      kinds.push_back(InputKind::kPowers);
    }
    if (HasExtremes(program)) kinds.push_back(InputKind::kExtremes);
  }
  if (IsExactOnIntegers(program)) kinds.push_back(InputKind::kIntegers);
  if (has_sums) kinds.push_back(InputKind::kPeaks);
  return kinds;
}

bool HasNonzero(const Sampled& sampled) {
  return std::any_of(sampled.samples.begin(), sampled.samples.end(),
                     [](const SamplePoint& s) { return s.value != 0; });
}

}  // namespace

std::vector<BufferRef> OutputsOf(const TensorProgram& program) {
  std::vector<BufferRef> outputs;
  for (const Stage& stage : program.stages) {
    if (stage.is_output) outputs.push_back(stage.tensor);
  }
  return outputs;
}

absl::Status CheckTypes(const TensorProgram& program) {
  std::vector<BufferRef> tensors = OutputsOf(program);
  tensors.insert(tensors.end(), program.inputs.begin(), program.inputs.end());
  for (const BufferRef& tensor : tensors) {
    const DType type = tensor->dtype;
    if (type == DType::kFloat32 || type == DType::kInt32 || search_space::IsNarrow(type)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(tensor->name, " is ", search_space::NameOf(type),
                     ": inputs and outputs are float32, tf32, float16 or bfloat16; ",
                     search_space::NameOf(type), " is for values between them"));
  }
  return absl::OkStatus();
}

const char* NameOf(InputKind kind) {
  switch (kind) {
    case InputKind::kUniform:
      return "uniform";
    case InputKind::kNormal:
      return "normal";
    case InputKind::kPositive:
      return "positive";
    case InputKind::kSmall:
      return "small";
    case InputKind::kIntegers:
      return "integer";
    case InputKind::kPeaks:
      return "peaked";
    case InputKind::kExtremes:
      return "extreme";
    case InputKind::kPowers:
      return "power-of-two";
  }
  return "";
}

Inputs::Inputs(const TensorProgram& program, uint64_t seed, double truncation)
    : program_(&program),
      seed_(seed),
      truncation_(truncation),
      peaks_(program, seed),
      extremes_(program, seed, Peaks::Of::kExtremes),
      powers_(ShareOfPowers(program)) {}

double Inputs::At(InputKind kind, int tensor, int64_t offset) const {
  const search_space::Buffer& input = *program_->inputs[static_cast<size_t>(tensor)];
  if (input.index_extent > 0) {
    return static_cast<double>(InputIndex(seed_, tensor, offset, input.index_extent));
  }
  const auto value = [&] {
    switch (kind) {
      case InputKind::kPeaks:
        return peaks_.At(tensor, offset);
      case InputKind::kExtremes:
        return extremes_.At(tensor, offset);
      case InputKind::kPowers:
        return InputPower(seed_, tensor, offset, powers_);
      default:
        return InputValue(seed_, tensor, offset, kind);
    }
  };
  return search_space::RoundTo(input.dtype, value());
}

std::optional<Sampled> Inputs::Sample(InputKind kind) const {
  auto input = [&](int tensor, int64_t offset) { return At(kind, tensor, offset); };
  Sampled result{kind,
                 search_space::EvaluateSamples(*program_, input, kSamples, seed_, kSampleOperations,
                                               UsableCores()),
                 {}};
  const std::vector<BufferRef> outputs = OutputsOf(*program_);
  std::vector<std::vector<SamplePoint>> of_output(outputs.size());
  for (const SamplePoint& sample : result.samples) {
    if (!std::isfinite(sample.value) || !std::isfinite(sample.magnitude)) return std::nullopt;
    if (kind == InputKind::kIntegers && !sample.exact && sample.magnitude > kExactBelow) {
      return std::nullopt;
    }
    of_output[static_cast<size_t>(sample.output)].push_back(sample);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    result.allowed.push_back(
        AllowedOf(*program_, kind, outputs[o]->dtype, of_output[o], truncation_));
    result.told = std::min(result.told, ToldShare(*program_, result.allowed[o], of_output[o]));
  }
  return result;
}

absl::StatusOr<std::vector<Sampled>> Inputs::Choose() const {
  // Shares of the elements that show: what a kind is taken with at once, and what is enough where
  // there is no better one.
  constexpr double kMost = 0.5, kSome = 1.0 / 64;
  std::vector<Sampled> chosen;
  for (InputKind kind : TellingKinds(*program_)) {
    std::optional<Sampled> found = Sample(kind);
    if (!found || found->told < kMost) continue;
    chosen.push_back(*std::move(found));
    break;
  }
  // What is timed: the power that matrix units draw depends on their operands.
  const bool has_narrow =
      std::any_of(program_->inputs.begin(), program_->inputs.end(),
                  [](const BufferRef& input) { return search_space::IsNarrow(input->dtype); });
  const InputKind usual = has_narrow ? InputKind::kNormal : InputKind::kUniform;
  std::optional<Sampled> finite;
  for (InputKind kind : {usual, InputKind::kPositive}) {
    std::optional<Sampled> found = Sample(kind);
    if (!found) continue;
    // Where others can tell, what is timed need not.
    if (!chosen.empty() || found->told >= kMost) {
      chosen.push_back(*std::move(found));
      return chosen;
    }
    if (!finite) finite = std::move(found);
  }
  if (!finite) {
    return absl::FailedPreconditionError(absl::StrCat(
        program_->op,
        " is not finite on random inputs, neither of [-1, 1) nor of [0.25, 1.25): its outputs "
        "cannot be checked"));
  }
  std::optional<Sampled> small = Sample(InputKind::kSmall);
  if (small && HasNonzero(*small) && small->told > finite->told) {
    chosen.push_back(*std::move(small));
  }
  if ((chosen.empty() ? *finite : chosen.front()).told < kSome) {
    return absl::FailedPreconditionError(absl::StrCat(
        program_->op,
        " gives outputs of such different sizes on random inputs that what rounding may do to the "
        "largest hides whether the others are right: they cannot be checked; reduce fewer terms, "
        "or take logarithms"));
  }
  chosen.push_back(*std::move(finite));
  return chosen;
}

}  // namespace heddle::measure
