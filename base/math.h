// Arithmetic of whole numbers that the language lacks.
#ifndef HEDDLE_BASE_MATH_H_
#define HEDDLE_BASE_MATH_H_

#include <cstdint>

namespace heddle {

// a / b, rounded downwards as % never is: -7 by 2 is -4. b is not 0.
constexpr int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// a / b, rounded upwards, of a >= 0 and b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The least multiple of b that is not below a, of the same.
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// 1, 2, 4, ...
constexpr bool IsPowerOfTwo(int64_t v) { return v > 0 && (v & (v - 1)) == 0; }

}  // namespace heddle

#endif  // HEDDLE_BASE_MATH_H_
