// Two buffers that differ in every way there is.
#ifndef HEDDLE_TESTS_MEASURE_COMPARED_H_
#define HEDDLE_TESTS_MEASURE_COMPARED_H_

#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

namespace heddle::tests {

struct Compared {
  std::vector<float> a, b;
};

// `count` elements; one in ten of them is off by up to 1e-3. With `special`, some are zeros of
// either sign, NaNs of several kinds and infinities, on one side or both.
inline Compared MakeCompared(int64_t count, bool special) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0f, -0.0f, kNan, -kNan, kInfinity, -kInfinity, 3e38f, -3e38f, 1e-40f};
  Compared made;
  uint32_t state = 1;
  auto next = [&](uint32_t n) { return (state = state * 1664525 + 1013904223) / 65536 % n; };
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(next(20000)) / 10000 - 1;
    made.a.push_back(value);
    made.b.push_back(next(10) == 0 ? value + static_cast<float>(next(1000)) * 1e-6f : value);
    if (special && next(7) == 0) made.a.back() = specials[next(std::size(specials))];
    if (special && next(7) == 0) made.b.back() = specials[next(std::size(specials))];
  }
  return made;
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_MEASURE_COMPARED_H_
