// Chains whose last product is of what two others make, as gradients of attention are, and such
// products that are made again for each of several outputs.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/schedule/rewrites/reductions/own_stages.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::gradients_test {
namespace {

// Of integers all of this is exact but for the rounding of weights, which the definition has, too.
constexpr const char* kOperators = R"(
op of_queries(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], G[b, s, d], D[b, s]: float32
  T[z: b, i: s, j: s] = sum(x: d) Q[z, i, x] * K[z, j, x]
  U[z: b, i: s, j: s] = sum(x: d) G[z, i, x] * V[z, j, x]
  E[z: b, i: s, j: s] = select(j <= i, T[z, i, j] / 16, 0)
  S[z: b, i: s, j: s]: bfloat16 = E[z, i, j] * (U[z, i, j] - D[z, i])
  out Y[z: b, i: s, x: d]: float32 = sum(j: s) S[z, i, j] * K[z, j, x]
}
op of_keys(b, s, t, d, e) {
  in Q[b, s, d], K[b, t, d], V[b, t, e], G[b, s, e], D[b, s]: float32
  T[z: b, i: s, j: t] = sum(x: d) Q[z, i, x] * K[z, j, x]
  U[z: b, i: s, j: t] = sum(x: e) G[z, i, x] * V[z, j, x]
  S[z: b, i: s, j: t]: bfloat16 = T[z, i, j] / 16 * (U[z, i, j] - D[z, i])
  out Y[z: b, j: t, x: d]: float32 = sum(i: s) S[z, i, j] * Q[z, i, x]
}
op all(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], G[b, s, d], O[b, s, d]
  D[z: b, i: s] = sum(x: d) G[z, i, x] * O[z, i, x]
  T[z: b, i: s, j: s] = sum(x: d) Q[z, i, x] * K[z, j, x]
  U[z: b, i: s, j: s] = sum(x: d) G[z, i, x] * V[z, j, x]
  E[z: b, i: s, j: s] = select(j <= i, T[z, i, j] / 16, 0)
  P[z: b, i: s, j: s]: bfloat16 = E[z, i, j]
  S[z: b, i: s, j: s]: bfloat16 = E[z, i, j] * (U[z, i, j] - D[z, i])
  out X[z: b, i: s, x: d]: float32 = sum(j: s) S[z, i, j] * K[z, j, x]
  out Y[z: b, j: s, x: d]: float32 = sum(i: s) S[z, i, j] * Q[z, i, x]
  out Z[z: b, j: s, x: d]: float32 = sum(i: s) P[z, i, j] * G[z, i, x]
}
op shared(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out X[i: m, r: k]: float32 = sum(j: n) max(S[i, j], 0) * B[j, r]
  out Y[i: m, r: k]: float32 = sum(j: n) max(S[i, j], 1) * B[j, r]
}
op outputs_of_outputs(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out X[i: m] = sum(j: n) S[i, j]
  out Y[j: n] = sum(i: m) S[i, j] * X[i]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

struct Case {
  const char *op, *shape, *like;
};

class Gradients : public testing::TestWithParam<Case> {};

TEST_P(Gradients, ComputeTheirProgram) {
  const auto& [op, shape, like] = GetParam();
  ExpectPointsCompute(Made(op, shape), TargetFor(like), like);
}

INSTANTIATE_TEST_SUITE_P(
    All, Gradients,
    testing::Values(Case{"of_queries", "b=2,s=96,d=16", " rolling:"},
                    Case{"of_queries", "b=1,s=192,d=32", " rolling_warpgroup:"},
                    Case{"of_queries", "b=1,s=128,d=16", " skip_masked=1"}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

// Points of that sketch, on a device on which it pays, and how many kernels they are.
void ExpectKernels(const std::shared_ptr<const TensorProgram>& program, const char* sketch,
                   size_t kernels) {
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 4, BeginsWith(sketch), inputs,
                 [&](const Program& lowered, const TensorValues& got) {
                   EXPECT_EQ(lowered.kernels.size(), kernels);
                   ExpectOutputsNear(*program, expected, got, 0);
                 });
}

// Weights that read both products themselves: what they read of one is a copy of its result.
TEST(GradientsTest, OfWeightsThatReadBothProducts) {
  ExpectKernels(Made("of_keys", "b=132,s=64,t=64,d=16,e=16"), "parts/rolling_warpgroup[", 1);
}

// A sum for each row, and a chain of products for each output.
TEST(GradientsTest, OfAllThree) {
  ExpectKernels(Made("all", "b=66,s=64,d=16"), "own_stages/rows+rolling", 4);
}

// What a mask leaves out of the last product is left out of those that its terms are made of, too,
// and is not fetched for them; and keys that are its values lie in shared memory once.
TEST(GradientsTest, ProductsOfMaskedTilesAreLeftOut) {
  const auto program = Made("of_queries", "b=1,s=192,d=32");
  for (const char* rule : {"rolling: ", "rolling_warpgroup: "}) {
    const auto space = *SearchSpace::Create(program, TargetFor(rule));
    const auto like = [&](const std::string& text) {
      return absl::StartsWith(text, rule) && absl::StrContains(text, " skip_masked=1");
    };
    const std::vector<Point> points = DrawnPoints(space, 1, like);
    ASSERT_EQ(points.size(), 1);
    const std::string loops = ToString(*space.Lower(points[0]));
    // The condition of the iteration comes before its first product.
    const size_t iteration = loops.find("  for j.0 in"), masked = loops.find("if j.0", iteration);
    ASSERT_NE(iteration, std::string::npos) << loops;
    const size_t product = loops.find("_multiply", iteration);
    ASSERT_NE(product, std::string::npos) << loops;
    EXPECT_LT(masked, product) << loops;
    EXPECT_TRUE(absl::StrContains(loops, "shared bfloat16 K.shared")) << loops;
    EXPECT_FALSE(absl::StrContains(loops, "shared bfloat16 Y.acc.operand1")) << loops;
  }
}

TEST(OwnStagesTest, EveryOutputIsMadeOfItsOwn) {
  const auto program = Made("all", "b=2,s=48,d=8");
  const std::vector<OwnStages> steps = OutputsWorthOwnStages(*program);
  ASSERT_EQ(steps.size(), 2U);  // the last keeps what there is
  Schedule schedule(program);
  for (const OwnStages& step : steps) ASSERT_TRUE(Apply(Step(step), schedule).ok());
  const TensorProgram& owning = schedule.program();
  for (const char* output : {"X", "Y", "Z"}) {
    const TensorProgram own = ProgramOfOutput(owning, output);
    for (const Stage& s : own.stages) EXPECT_NE(s.name(), "D");
    EXPECT_EQ(own.stages.back().name(), output);
    EXPECT_TRUE(own.stages.back().is_output);
  }
  TensorValues expected = IntegerInputs(*program), got = expected;
  EvaluateAll(*program, expected);
  EvaluateAll(owning, got);
  for (const char* output : {"X", "Y", "Z"}) EXPECT_EQ(got.at(output), expected.at(output));
}

// Whose products no kernel takes in are better shared.
TEST(OwnStagesTest, WhatIsStoredIsShared) {
  const auto program = Made("shared", "m=4096,n=4096,k=64");
  ASSERT_FALSE(OutputsWorthOwnStages(*program).empty());
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  EXPECT_TRUE(DrawnPoints(space, 1, BeginsWith("own_stages/")).empty());
}

TEST(OwnStagesTest, OutputsOfOtherOutputsShare) {
  const auto program = Made("outputs_of_outputs", "m=32,n=32,k=8");
  EXPECT_TRUE(OutputsWorthOwnStages(*program).empty());
  const auto owning = WithOwnStages(*program, "X");
  ASSERT_FALSE(owning.ok());
  EXPECT_TRUE(absl::StrContains(owning.status().message(), "none of which is made of another"));
}

}  // namespace
}  // namespace heddle::search_space::gradients_test
