#include "measure/judge/criteria.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "measure/judge/timing.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/sketch/programs/least_flops.h"

namespace heddle::measure {
namespace {

using search_space::DType;
using search_space::Expr;
using search_space::Op;
using search_space::SamplePoint;
using search_space::Stage;
using search_space::TensorProgram;

// The finaliser of splitmix64 (G. Steele, D. Lea, C. Flood, Fast splittable pseudorandom number
// generators, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr double kUnitRoundoff = 0x1p-24;
constexpr int kLargestInteger = 4;  // of kIntegers

double Additions(const TensorProgram& program) {
  double additions = 1;
  for (const Stage& stage : program.stages) {
    additions += static_cast<double>(search_space::ExtentOf(stage.reduce_axes));
  }
  return additions;
}

// small + slope |value| is at least the magnitude of each sample.
struct Envelope {
  double small = 0, slope = 0;
};
// `small` serves all samples up to `size`, `slope` the larger ones.
Envelope EnvelopeOf(const std::vector<SamplePoint>& samples, double size) {
  Envelope line;
  for (const SamplePoint& s : samples) {
    if (std::abs(s.value) <= size) line.small = std::max(line.small, s.magnitude);
  }
  for (const SamplePoint& s : samples) {
    if (std::abs(s.value) <= size) continue;
    line.slope = std::max(line.slope, (s.magnitude - line.small) / std::abs(s.value));
  }
  return line;
}

}  // namespace

uint64_t InputHash(uint64_t seed, int tensor, int64_t offset) {
  const uint64_t stream = Mix(seed + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(tensor + 1));
  return Mix(stream + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(offset + 1));
}

float InputValue(uint64_t seed, int tensor, int64_t offset, InputKind kind) {
  const uint64_t bits = InputHash(seed, tensor, offset);
  if (kind == InputKind::kIntegers)
    return static_cast<float>(static_cast<int>((bits >> 32) % (2 * kLargestInteger + 1)) -
                              kLargestInteger);
  if (kind == InputKind::kNormal) {
    // The sum of four uniform numbers; a 16-bit one has the variance (2^32 - 1) / 12.
    int64_t sum = 0;
    for (int shift = 0; shift < 64; shift += 16)
      sum += static_cast<int64_t>(bits >> shift & 0xffff);
    return static_cast<float>(static_cast<double>(sum - 2 * 0xffff) * std::sqrt(3.0) * 0x1p-16);
  }
  const float unit = static_cast<float>(bits >> 40) * 0x1p-24f;  // [0, 1)
  if (kind == InputKind::kPositive) return unit + 0.25f;
  return (2 * unit - 1) * (kind == InputKind::kSmall ? 0x1p-4f : 1);
}

float InputPower(uint64_t seed, int tensor, int64_t offset, double share) {
  const uint64_t bits = InputHash(seed, tensor, offset);
  const double unit = static_cast<double>(bits >> 11) * 0x1p-53;  // [0, 1)
  const float size = unit >= share ? 1.0F : unit < share / 2 ? 2.0F : 0.5F;
  return (bits & 1) != 0 ? size : -size;
}

int64_t InputIndex(uint64_t seed, int tensor, int64_t offset, int64_t extent) {
  const uint64_t bits = InputHash(seed, tensor, offset) >> 32;
  return static_cast<int64_t>(bits * static_cast<uint64_t>(extent) >> 32);
}

int BufferSetsOf(const TensorProgram& program, L2Policy l2, int64_t cache_bytes,
                 int64_t free_bytes) {
  int64_t stored = 0;
  for (const search_space::BufferRef& input : program.inputs) stored += input->bytes();
  for (const Stage& stage : program.stages) stored += stage.is_output ? stage.tensor->bytes() : 0;
  const int64_t fitting = std::max<int64_t>(1, free_bytes / std::max<int64_t>(1, stored));
  const int wanted = BufferSetCount(l2, program.IoBytes(), cache_bytes, free_bytes);
  return static_cast<int>(std::min<int64_t>(wanted, fitting));
}

double FastestPlausible(const TensorProgram& program, const search_space::Target& target,
                        L2Policy l2) {
  constexpr double kMargin = 0.75, kCacheOverMemory = 16;
  const double bytes = static_cast<double>(program.IoBytes());
  const double cache = static_cast<double>(target.l2_bytes);
  // What at least comes from memory: all of it, less the share of the rotation that may stay.
  const double rotation =
      bytes * BufferSetsOf(program, l2, target.l2_bytes, target.memory_bytes / 2);
  // A CPU's bandwidth was measured, perhaps while others used it: all of it counts as cached.
  const bool measured = target.processor;
  const double from_memory =
      rotation > 0 && !measured ? bytes * std::max(0.0, 1 - cache / rotation) : 0;
  double seconds = 0;
  if (const double peak = search_space::PeakGflops(program, target); peak > 0)
    seconds = search_space::LeastFlops(program) / (peak * 1e9);
  if (target.memory_gbs > 0) {
    const double bandwidth = target.memory_gbs * 1e9;
    seconds = std::max(
        seconds, from_memory / bandwidth + (bytes - from_memory) / (bandwidth * kCacheOverMemory));
  }
  return kMargin * seconds;
}

namespace {

// The largest magnitude that values can have where inputs are integers of kIntegers, at most.
class IntegerBounds {
 public:
  explicit IntegerBounds(const TensorProgram& program) {
    for (const Stage& stage : program.stages) {  // they read earlier ones only
      const bool adds = stage.combiner == search_space::Combiner::kSum;
      const int64_t terms = adds ? search_space::ExtentOf(stage.reduce_axes) : 1;
      of_stage_[stage.tensor.get()] = static_cast<double>(terms) * Of(stage.body);
    }
  }

  double Of(const Expr& e) const {
    switch (e->op) {
      case Op::kLoad: {
        const auto stage = of_stage_.find(e->buffer.get());
        return stage == of_stage_.end() ? kLargestInteger : stage->second;
      }
      case Op::kFloat:
        return std::isinf(e->float_value) ? 0 : std::abs(e->float_value);
      case Op::kCast:
        return search_space::IsFloat(e->args[0]->type) ? Of(e->args[0])
                                                       : std::numeric_limits<double>::infinity();
      case Op::kNeg:
      case Op::kAbs:
        return Of(e->args[0]);
      case Op::kMul:
        return Of(e->args[0]) * Of(e->args[1]);
      case Op::kAdd:
      case Op::kSub:
        return Of(e->args[0]) + Of(e->args[1]);
      case Op::kMax:
      case Op::kMin:
        return std::max(Of(e->args[0]), Of(e->args[1]));
      case Op::kSelect:
        return std::max(Of(e->args[1]), Of(e->args[2]));
      default:
        return std::numeric_limits<double>::infinity();
    }
  }

 private:
  std::map<const search_space::Buffer*, double> of_stage_;
};

}  // namespace

bool IsExactOnIntegers(const TensorProgram& program) {
  bool exact = true;
  const IntegerBounds bounds(program);
  for (const Stage& stage : program.stages) {
    const auto factor = search_space::FindSplittable(program, stage);
    exact = exact &&
            (!factor.has_value() || bounds.Of(factor->value) <= search_space::kMostExactInParts);
  }
  for (const Stage& stage : program.stages) {
    if (stage.combiner == search_space::Combiner::kProd) return false;
    search_space::Visit(stage.body, [&](const Expr& e) {
      switch (e->op) {
        case Op::kFloat:
          exact = exact &&
                  (std::isinf(e->float_value) || std::nearbyint(e->float_value) == e->float_value);
          break;
        case Op::kDiv:
        case Op::kMod:
          exact = exact && !search_space::IsFloat(e->type);
          break;
        default:
          exact = exact && !IsFunction(e->op);
          break;
      }
    });
  }
  return exact;
}

bool IsExactOnPowers(const TensorProgram& program) {
  bool exact = true;
  for (const Stage& stage : program.stages) {
    if (stage.is_reduction() && stage.combiner == search_space::Combiner::kSum) return false;
    search_space::Visit(stage.body, [&](const Expr& e) {
      if (!search_space::IsFloat(e->type)) return;  // an index or a condition
      int exponent = 0;
      switch (e->op) {
        case Op::kLoad:
        case Op::kNeg:
        case Op::kAbs:
        case Op::kMul:
        case Op::kMax:
        case Op::kMin:
        case Op::kSelect:
          break;
        case Op::kFloat:
          exact = exact && (e->float_value == 0 || std::isinf(e->float_value) ||
                            std::abs(std::frexp(e->float_value, &exponent)) == 0.5);
          break;
        case Op::kCast:
          exact = exact && search_space::IsFloat(e->args[0]->type);
          break;
        default:
          exact = false;
      }
    });
  }
  return exact;
}

double Tolerance(const TensorProgram& program, double magnitude) {
  const double rounding = kUnitRoundoff * (8 * std::sqrt(Additions(program)) + 16);
  return (rounding + search_space::kPartsLoss * search_space::CountSplittable(program)) * magnitude;
}

double LongestLoss(const TensorProgram& program, double magnitude) {
  return kUnitRoundoff * Additions(program) * magnitude;
}

double Truncation(const TensorProgram& program, const search_space::Target& target) {
  const double steps = search_space::MostMatrixSteps(program, target);
  return steps > 0 ? 2 * kUnitRoundoff * (steps + 8) : 0;
}

namespace {

// Those that AllowedOf looks at.
std::vector<SamplePoint> Decisive(const TensorProgram& program,
                                  const std::vector<SamplePoint>& samples) {
  constexpr size_t kFew = 16;  // one in so many
  std::vector<SamplePoint> rounded, clear;
  std::vector<double> sizes;
  for (const SamplePoint& s : samples) {
    if (s.exact) continue;
    rounded.push_back(s);
    if (s.value != 0) sizes.push_back(std::abs(s.value));
  }
  if (sizes.empty()) return rounded;
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  const double relative = Tolerance(program, 1);
  for (const SamplePoint& s : rounded) {
    const double size = std::max(*middle, std::abs(s.value));
    if (relative * s.magnitude <= size) clear.push_back(s);
  }
  return (rounded.size() - clear.size()) * kFew <= rounded.size() ? clear : rounded;
}

// As AllowedOf, of additions that round to the nearest value, and before the rounding to the
// output's type.
Allowed AllowedInFloat32(const TensorProgram& program, InputKind kind,
                         const std::vector<SamplePoint>& samples) {
  double largest = 0;
  for (const SamplePoint& s : samples) largest = std::max(largest, s.magnitude);
  Allowed best = {Tolerance(program, largest), 0};
  if (kind != InputKind::kPeaks) return best;
  std::vector<double> sizes;  // of what is not zero: relu makes as many zeros as it likes
  for (const SamplePoint& s : samples) {
    if (s.value != 0) sizes.push_back(std::abs(s.value));
  }
  std::sort(sizes.begin(), sizes.end());
  // Enough elements to tell what small ones need, and few enough to be small: which share of all
  // that is differs. The line that allows least, in the geometric mean, is taken.
  double least = std::log(best.absolute);
  for (size_t quarters : {1, 2, 3}) {
    if (sizes.empty()) break;
    const Envelope line = EnvelopeOf(samples, sizes[sizes.size() * quarters / 4]);
    if (line.small <= 0) continue;
    const Allowed allowed = {Tolerance(program, line.small), line.slope / line.small};
    double mean = std::log(allowed.absolute);
    for (const double size : sizes) {
      mean += std::log1p(allowed.slack * size) / static_cast<double>(sizes.size());
    }
    if (mean < least) least = mean, best = allowed;
  }
  return best;
}

}  // namespace

Allowed AllowedOf(const TensorProgram& program, InputKind kind, DType type,
                  const std::vector<SamplePoint>& all, double truncation) {
  if (kind == InputKind::kIntegers) return {};
  if (kind == InputKind::kPowers && IsExactOnPowers(program)) return {};
  const std::vector<SamplePoint> samples = Decisive(program, all);
  Allowed allowed = AllowedInFloat32(program, kind, samples);
  if (kind == InputKind::kPeaks) {
    if (allowed.absolute > 0) allowed.slack += truncation / allowed.absolute;
  } else {
    double largest = 0;
    for (const SamplePoint& s : samples) largest = std::max(largest, std::abs(s.value));
    allowed.absolute += truncation * largest;
  }
  // Below the smallest normal number of float32, in which values are computed, roundings are
  // absolute, and a device may take its results for 0.
  if (type != DType::kFloat64) allowed.absolute = std::max(allowed.absolute, 0x1p-126);
  if (!search_space::IsNarrow(type)) return allowed;
  // float16 reaches down to 2^-14 only.
  allowed.absolute += type == DType::kFloat16 ? 2 * 0x1p-25 : 0;
  allowed.slack += 2 * search_space::UnitRoundoff(type) / allowed.absolute;
  return allowed;
}

double ToleranceAt(const Allowed& allowed, double expected) {
  return allowed.absolute * (1 + allowed.slack * std::abs(expected));
}

double ToldShare(const TensorProgram& program, const Allowed& allowed,
                 const std::vector<SamplePoint>& samples) {
  size_t sized = 0, told = 0;
  const double relative = Tolerance(program, 1);
  for (const SamplePoint& s : samples) {
    if (s.value == 0) continue;
    constexpr double kMuchMore = 16;
    const double most = ToleranceAt(allowed, s.value);
    ++sized;
    told += most <= std::abs(s.value) || most <= kMuchMore * relative * s.magnitude ? 1 : 0;
  }
  return sized == 0 ? 1 : static_cast<double>(told) / static_cast<double>(sized);
}

}  // namespace heddle::measure
