// The floating-point formats of DType on the host: how each rounds, and the bits of the 16-bit
// ones, for which C++20 has no types.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_FLOAT_FORMAT_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_FLOAT_FORMAT_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

// Kept in memory as an unsigned 16-bit integer.
inline constexpr std::array kHalfTypes = {DType::kFloat16, DType::kBFloat16};
inline bool IsHalf(DType type) {
  return std::find(kHalfTypes.begin(), kHalfTypes.end(), type) != kHalfTypes.end();
}
// These and tf32, which is kept as the float32: of fewer digits than float32, in which they are
// computed with.
inline bool IsNarrow(DType type) { return IsHalf(type) || type == DType::kTF32; }

// The nearest value of `type`, ties to even (IEEE 754), those of tf32 away from zero, as all
// devices that know it round; infinite where that would exceed the largest finite one. NaN stays
// NaN; other types than floating-point ones keep every value.
double RoundToNarrow(DType type, double value);
inline double RoundTo(DType type, double value) {
  if (type == DType::kFloat32) return static_cast<double>(static_cast<float>(value));
  return IsNarrow(type) ? RoundToNarrow(type, value) : value;
}

// Half the distance from 1 to the next larger value: the largest relative error of a rounding.
double UnitRoundoff(DType type);

// The bits of RoundTo(type, value) in a 16-bit type. Every NaN becomes the quiet 0x7fff, as by the
// conversions of CUDA devices.
uint16_t HalfBits(DType type, double value);
// The value that the bits stand for.
float HalfValue(DType type, uint16_t bits);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_FLOAT_FORMAT_H_
