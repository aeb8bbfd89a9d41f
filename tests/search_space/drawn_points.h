// Points as a search draws them, of the sketches that a test is about, and what they compute.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_DRAWN_POINTS_H_
#define HEDDLE_TESTS_SEARCH_SPACE_DRAWN_POINTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"

namespace heddle::search_space {

// Is the point with this text one that a test wants?
using IsWanted = std::function<bool(const std::string& text)>;

inline IsWanted BeginsWith(const std::string& prefix) {
  return [prefix](const std::string& text) { return text.starts_with(prefix); };
}

// How many kernels read or write a tensor.
inline int64_t KernelsWith(const Program& lowered, const std::string& tensor) {
  return std::count_if(lowered.kernels.begin(), lowered.kernels.end(), [&](const Kernel& k) {
    return std::any_of(k.arguments.begin(), k.arguments.end(),
                       [&](const BufferRef& b) { return b->name == tensor; });
  });
}

// A device on which sketches of that name are drawn: where warpgroups' instructions multiply a
// chain's matrices, they supersede its other sketches.
inline Target TargetFor(const std::string& sketch) {
  return *FindTarget(absl::StrContains(sketch, "warpgroup") ? "h100" : "a100");
}

// The first `most` of so many draws that are wanted.
inline std::vector<Point> DrawnPoints(const SearchSpace& space, size_t most,
                                      const IsWanted& is_wanted, uint64_t seed = 1,
                                      int draws = 1200) {
  std::vector<Point> points;
  Rng rng(seed);
  for (int draw = 0; draw < draws && points.size() < most; ++draw) {
    const std::optional<Point> point = space.Sample(rng);
    if (point && is_wanted(space.Print(*point))) points.push_back(*point);
  }
  return points;
}

// Expects `count` points that are wanted, all of which pass the verifier, and has `look` see what
// each makes of `inputs`.
inline void ForDrawnPoints(
    const SearchSpace& space, size_t count, const IsWanted& is_wanted, const TensorValues& inputs,
    const std::function<void(const Program& lowered, const TensorValues& values)>& look,
    uint64_t seed = 1) {
  const std::vector<Point> points = DrawnPoints(space, count, is_wanted, seed);
  EXPECT_EQ(points.size(), count);
  for (size_t i = 0; i < points.size(); ++i) {
    SCOPED_TRACE(space.Print(points[i]));
    const auto lowered = space.Lower(points[i]);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const absl::Status verified = Verify(*lowered, space.target());
    ASSERT_TRUE(verified.ok()) << verified << ToString(*lowered);
    TensorValues values = inputs;
    const absl::Status ran = Interpret(*lowered, values, {.seed = i + 1});
    ASSERT_TRUE(ran.ok()) << ran << ToString(*lowered);
    look(*lowered, values);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Each element of each output, within `error` of its value and of 1.
inline void ExpectOutputsNear(const TensorProgram& program, const TensorValues& expected,
                              const TensorValues& got, double error) {
  for (const Stage& s : program.stages) {
    if (!s.is_output) continue;
    for (size_t e = 0; e < expected.at(s.name()).size(); ++e) {
      const double value = expected.at(s.name())[e];
      ASSERT_NEAR(got.at(s.name())[e], value, error * (std::abs(value) + 1))
          << s.name() << " " << e;
    }
  }
}

}  // namespace heddle::search_space

#endif  // HEDDLE_TESTS_SEARCH_SPACE_DRAWN_POINTS_H_
