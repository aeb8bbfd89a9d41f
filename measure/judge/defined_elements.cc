#include "measure/judge/defined_elements.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {
namespace {

using search_space::DType;
using search_space::SamplePoint;
using search_space::TensorProgram;

// One element in so many may hang on a decision that rounding turns, or be what is left of numbers
// that cancel.
constexpr int64_t kLeastToUncertain = 256;
// A mask's -1e9, of which nothing is left, would explain anything: an element's own rounding errors
// are at most this share of a value.
constexpr double kMostOfValue = 1.0 / 16;
// Scalar operations of one look at the definition.
constexpr int64_t kMostOperations = int64_t{1} << 28;

}  // namespace

DefinedElements::DefinedElements(const TensorProgram& program, const Inputs& inputs,
                                 const Sampled& sampled, int threads)
    : program_(&program), inputs_(&inputs), kind_(sampled.kind), threads_(threads) {
  for (const search_space::BufferRef& tensor : OutputsOf(program)) {
    outputs_.push_back({tensor, sampled.allowed[outputs_.size()], 0, {}});
  }
  for (const SamplePoint& s : sampled.samples) {
    double& size = outputs_[static_cast<size_t>(s.output)].size;
    // A mask's number is exact, and explains nothing.
    if (std::isfinite(s.value) && !s.exact) size = std::max(size, std::abs(s.value));
  }
}

void DefinedElements::LookUp(size_t output, absl::Span<const int64_t> offsets) {
  auto& known = outputs_[output].known;
  std::vector<int64_t> unknown;
  std::copy_if(offsets.begin(), offsets.end(), std::back_inserter(unknown),
               [&](int64_t offset) { return !known.contains(offset); });
  const auto input = [&](int tensor, int64_t offset) { return inputs_->At(kind_, tensor, offset); };
  const auto evaluate = [&](const std::vector<int64_t>& some, bool turned) {
    return search_space::EvaluateElements(*program_, static_cast<int>(output), some, input,
                                          kMostOperations, threads_, turned);
  };
  std::vector<int64_t> uncertain;
  for (const SamplePoint& point : evaluate(unknown, false)) {
    known[point.offset] = {point, point};
    if (point.uncertain) uncertain.push_back(point.offset);
  }
  for (const SamplePoint& point : evaluate(uncertain, true)) known[point.offset][1] = point;
}

// By its own rounding errors, and that to the output's type; not where all is exact.
bool DefinedElements::IsNear(const SamplePoint& point, float got) const {
  const Output& output = outputs_[static_cast<size_t>(point.output)];
  const Allowed& allowed = output.allowed;
  if (allowed.absolute <= 0 || !std::isfinite(got) || !std::isfinite(point.value)) return false;
  if (ErrorOf(Distance(got, static_cast<float>(point.value), allowed.slack), allowed.absolute) <=
      1) {
    return true;
  }
  if (point.exact) return false;
  const double own = Tolerance(*program_, point.magnitude);
  if (own > kMostOfValue * std::abs(point.value)) return false;
  const DType type = output.tensor->dtype;
  const double rounding = search_space::IsNarrow(type) ? search_space::UnitRoundoff(type) : 0;
  return Distance(got, static_cast<float>(point.value), 0) <=
         own + 2 * rounding * std::abs(point.value);
}

// What is left of numbers that cancel is as large as any error of theirs: these have to be small
// beside what else the output has.
bool DefinedElements::IsOfCancelled(const SamplePoint& point, float got) const {
  const Output& output = outputs_[static_cast<size_t>(point.output)];
  if (output.allowed.absolute <= 0 || point.exact || !std::isfinite(got)) return false;
  const double own = Tolerance(*program_, point.magnitude);
  return own <= kMostOfValue * output.size &&
         Distance(got, static_cast<float>(point.value), 0) <= own;
}

bool DefinedElements::Allow(size_t output, const Mismatch& found, const void* got) {
  if (found.elements > static_cast<int64_t>(found.offsets.size())) return false;
  LookUp(output, found.offsets);
  const auto& [tensor, allowed, size, known] = outputs_[output];
  int64_t doubtful = 0;
  for (const int64_t offset : found.offsets) {
    const auto points = known.find(offset);
    if (points == known.end()) return false;
    const auto& [as_it_is, otherwise] = points->second;
    const float element = ElementAt(got, offset, tensor->dtype);
    if (IsNear(as_it_is, element)) continue;
    if (!IsNear(otherwise, element) && !IsOfCancelled(as_it_is, element)) return false;
    ++doubtful;
  }
  return doubtful <= tensor->elements / kLeastToUncertain;
}

bool DefinedElements::AllowTurned(const SamplePoint& sample, float got) {
  if (!sample.uncertain) return false;
  const auto output = static_cast<size_t>(sample.output);
  LookUp(output, {sample.offset});
  const auto& known = outputs_[output].known;
  const auto points = known.find(sample.offset);
  return points != known.end() && IsNear(points->second[1], got);
}

}  // namespace heddle::measure
