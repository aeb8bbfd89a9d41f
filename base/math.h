// Arithmetic that the language lacks.
#ifndef HEDDLE_BASE_MATH_H_
#define HEDDLE_BASE_MATH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

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

// Of values, at least one; the larger of the two in the middle of an even number.
inline double UpperMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace heddle

#endif  // HEDDLE_BASE_MATH_H_
