// Axes that are read by quotients and remainders, as two: which those are, what a program becomes,
// and what is refused.
#include "search_space/schedule/rewrites/axes/split_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/form.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::split_axis_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kOperators = R"(
op in_blocks(s, w, d) {
  in Q[s, d], K[s + w, d], V[s + w, d]
  T[i: s, j: 2 * w] = sum(r: d) Q[i, r] * K[i / w * w + j, r]
  E[i: s, j: 2 * w] = select(j > i % w && j <= i % w + w, T[i, j], 0)
  L[i: s] = sum(r: 2 * w) E[i, r]
  O[i: s, x: d] = sum(r: 2 * w) E[i, r] * V[i / w * w + r, x]
  out Y[i: s, x: d] = O[i, x] - L[i]
}
op upsampled(n, c, h, w, o) {
  in X[n, c, h, w], F[c, o, 2, 2]
  P[b: n, k: c, y: h, x: w] = X[b, k, y, x] + 1
  out Y[b: n, q: o, y: 2 * h, x: 2 * w] = sum(k: c) P[b, k, y / 2, x / 2] * F[k, q, y % 2, x % 2]
}
op reads_shifted(s, w, d) {
  in Q[s, d], K[s, d]
  T[i: s, j: w] = sum(r: d) Q[i, r] * K[i / w * w + j, r]
  out Y[i: s - 1, j: w] = T[i + 1, j]
}
op reduces_places(s, w, d) {
  in Q[s, d], K[s, d]
  T[i: s, j: w] = sum(r: d) Q[i, r] * K[i / w * w + j, r]
  out Y[j: w] = max(i: s) T[i, j]
}
op scales(m, n, k, g) {
  in X[m, k], W[n, k], S[n / g, k]
  out Y[i: m, j: n] = sum(r: k) X[i, r] * W[j, r] * S[j / g, r]
}
op read_elsewhere(s, w, d) {
  in Q[s, d], K[s, d]
  P[i: s, r: d] = Q[i, r] * 2
  T[i: s, j: w] = sum(r: d) P[i, r] * K[i / w * w + j, r]
  out Y[i: s, j: w] = T[i, j] + P[s - 1 - i, 0]
}
)";

TensorProgram Made(const std::string& op, const std::string& shape) {
  return *InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

std::vector<std::string> SplitsOf(TensorProgram program) {
  std::vector<std::string> splits;
  while (const auto parts = AxisWorthSplitting(program)) {
    splits.push_back(absl::StrCat(parts->stage, " ", parts->axis, " ", parts->width));
    program = **WithSplitAxis(program, parts->stage, parts->axis, parts->width);
  }
  return splits;
}

std::string ShapesOf(const TensorProgram& program) {
  std::string shapes;
  for (const Stage& s : program.stages) {
    absl::StrAppend(&shapes, shapes.empty() ? "" : ", ", s.name());
    for (const Var& axis : s.axes) absl::StrAppend(&shapes, " ", axis->name, ":", axis->extent);
  }
  return shapes;
}

TEST(SplitAxisTest, BlocksOfWhichPlacesShareWhatIsMultipliedAreSplit) {
  EXPECT_THAT(SplitsOf(Made("in_blocks", "s=12,w=4,d=3")), ElementsAre("T i 4"));
  EXPECT_THAT(SplitsOf(Made("upsampled", "n=2,c=3,h=4,w=5,o=2")), ElementsAre("Y y 2", "Y x 2"));
  // One block; elements beside the own one; a reduction; factors without columns.
  for (const auto& [op, shape] : {std::pair("in_blocks", "s=4,w=4,d=3"),
                                  {"reads_shifted", "s=12,w=4,d=3"},
                                  {"reduces_places", "s=12,w=4,d=3"},
                                  {"scales", "m=4,n=8,k=3,g=2"}}) {
    EXPECT_THAT(SplitsOf(Made(op, shape)), IsEmpty()) << op;
  }
}

TEST(SplitAxisTest, AllStagesAlongTheAxisAreSplit) {
  const TensorProgram split = **WithSplitAxis(Made("in_blocks", "s=12,w=4,d=3"), "T", "i", 4);
  EXPECT_EQ(ShapesOf(split),
            "T i:3 i_in:4 j:8, E i:3 i_in:4 j:8, L i:3 i_in:4, O i:3 i_in:4 x:3, Y i:3 i_in:4 x:3");
  EXPECT_EQ(ToString(split.stages[0].body), "Q[i, i_in, r] * K[i * 4 + j, r]");
  // What is read in another way as well stays as it is, and so does what stands before that.
  const TensorProgram beside = **WithSplitAxis(Made("read_elsewhere", "s=12,w=4,d=3"), "T", "i", 4);
  EXPECT_EQ(ShapesOf(beside), "P i:12 r:3, T i:3 i_in:4 j:4, Y i:3 i_in:4 j:4");
}

TEST(SplitAxisTest, ReductionsAlongTheAxisAreSplit) {
  const auto program = Made("reduces_places", "s=12,w=4,d=3");
  const auto split = WithSplitAxis(program, "T", "i", 4);
  ASSERT_TRUE(split.ok()) << split.status();
  const std::vector<Var>& reduced = (*split)->stages[1].reduce_axes;
  ASSERT_EQ(reduced.size(), 2);
  EXPECT_EQ(reduced[0]->extent, 3);
  EXPECT_EQ(reduced[1]->extent, 4);
  EXPECT_EQ(ToString((*split)->stages[1].body), "T[i, i_in, j]");
  TensorValues inputs = IntegerInputs(program), values = inputs;
  EvaluateAll(program, inputs);
  EvaluateAll(**split, values);
  EXPECT_EQ(values.at("Y"), inputs.at("Y"));
}

TEST(SplitAxisTest, ComputesTheSame) {
  for (const auto& [op, shape] : {std::pair("in_blocks", "s=12,w=4,d=3"),
                                  {"upsampled", "n=2,c=3,h=4,w=5,o=2"},
                                  {"read_elsewhere", "s=12,w=4,d=3"}}) {
    SCOPED_TRACE(op);
    ExpectFormComputes(std::make_shared<const TensorProgram>(Made(op, shape)));
  }
}

TEST(SplitAxisTest, OtherAxesAreRefused) {
  const TensorProgram program = Made("in_blocks", "s=12,w=4,d=3");
  const auto refusal = [](const TensorProgram& of, const std::string& stage,
                          const std::string& axis, int64_t width) {
    return std::string(WithSplitAxis(of, stage, axis, width).status().message());
  };
  EXPECT_EQ(refusal(program, "O", "i", 2), "");
  EXPECT_THAT(refusal(program, "Q", "i", 4), HasSubstr("Q is no stage of in_blocks"));
  EXPECT_THAT(refusal(program, "T", "r", 3), HasSubstr("r is no axis of T"));
  for (const int64_t width : {int64_t{-4}, int64_t{0}, int64_t{1}, int64_t{5}, int64_t{12}}) {
    EXPECT_THAT(refusal(program, "T", "i", width),
                HasSubstr("of i, which has 12 elements, are not two or more of two or more"));
  }
  EXPECT_THAT(refusal(program, "O", "x", 3), HasSubstr("of x, which has 3 elements"));
  EXPECT_THAT(refusal(Made("reads_shifted", "s=12,w=4,d=3"), "T", "i", 4),
              HasSubstr("not all that reads T along i has an axis for that"));
}

TEST(SplitAxisTest, SchedulesBeginWithIt) {
  const auto program = std::make_shared<const TensorProgram>(Made("in_blocks", "s=512,w=64,d=64"));
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const std::vector<Step> steps = *space.Steps(space.Default());
  EXPECT_EQ(ToString(steps.at(0)), "split_axis(T, i, 64)");
}

}  // namespace
}  // namespace heddle::search_space::split_axis_test
