// Reductions of a few terms as expressions: of which that is worth it, what a program becomes, and
// kernels of it.
#include "search_space/schedule/rewrites/reductions/expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::expand_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op chamfer(b, m, n) {
  in P[b, m, 3], Q[b, n, 3]
  D[z: b, i: m, j: n] = sum(r: 3) (P[z, i, r] - Q[z, j, r]) * (P[z, i, r] - Q[z, j, r])
  out X[z: b, i: m] = min(j: n) D[z, i, j]
  out Y[z: b, j: n] = min(i: m) D[z, i, j]
}
op through_others(m, n, k) {
  in A[m, n, k]
  F[i: m, j: n] = max(r: k) A[i, j, r]
  G[i: m, j: n] = F[i, j] * 2
  H[i: m] = sum(r: k) A[i, 0, r]
  out S[i: m] = sum(j: n) G[i, j]
  out T[i: m] = H[i]
}
op nearest(m, n) {
  in P[m, 2], Q[n, 2]
  D[i: m, j: n] = sum(r: 2) (P[i, r] - Q[j, r]) * (P[i, r] - Q[j, r])
  E[i: m, j: n] = D[i, j] * 2
  out X[i: m] = argmin(j: n) E[i, j]
}
op windows(n) {
  in A[n + 1, n + 3]
  W[i: n, j: n] = prod(r: 2, s: 4) A[i + r, j + s]
  out S[i: n] = sum(j: n) W[i, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

std::string BodyOf(const TensorProgram& program, const std::string& name) {
  for (const Stage& stage : program.stages) {
    if (stage.name() == name && !stage.is_reduction()) return ToString(stage.body);
  }
  return "no elementwise stage";
}

TEST(ExpandTest, TermsStandOneBehindTheOther) {
  const auto chamfer = Made("chamfer", "b=2,m=5,n=7");
  EXPECT_THAT(TermsWorthExpanding(*chamfer), ElementsAre("D"));
  EXPECT_EQ(BodyOf(**WithExpandedTerms(*chamfer, "D"), "D"),
            "(P[z, i, 0] - Q[z, j, 0]) * (P[z, i, 0] - Q[z, j, 0]) + "
            "(P[z, i, 1] - Q[z, j, 1]) * (P[z, i, 1] - Q[z, j, 1]) + "
            "(P[z, i, 2] - Q[z, j, 2]) * (P[z, i, 2] - Q[z, j, 2])");
  // The last axis runs fastest.
  const auto windows = Made("windows", "n=9");
  EXPECT_THAT(BodyOf(**WithExpandedTerms(*windows, "W"), "W"),
              HasSubstr("A[i, j] * A[i, j + 1] * A[i, j + 2] * A[i, j + 3] * A[i + 1, j]"));
}

// What no other reduction reads stays what it is, as do long ones.
TEST(ExpandTest, IsForWhatIsReducedFurther) {
  EXPECT_THAT(TermsWorthExpanding(*Made("through_others", "m=4,n=5,k=8")), ElementsAre("F"));
  EXPECT_THAT(TermsWorthExpanding(*Made("through_others", "m=4,n=5,k=9")), ElementsAre());
}

// A position is found by comparing what is computed again with the least of it.
TEST(ExpandTest, WhatIsComparedStaysWhatItIs) {
  EXPECT_THAT(TermsWorthExpanding(*Made("nearest", "m=4,n=5")), ElementsAre());
}

TEST(ExpandTest, OthersAreRefused) {
  const auto refusal = [](const std::string& stage, const std::string& shape) {
    return std::string(WithExpandedTerms(*Made("through_others", shape), stage).status().message());
  };
  EXPECT_EQ(refusal("F", "m=4,n=5,k=8"), "");
  EXPECT_THAT(refusal("F", "m=4,n=5,k=9"), HasSubstr("F is no reduction of at most 8 terms"));
  EXPECT_THAT(refusal("G", "m=4,n=5,k=8"), HasSubstr("G is no reduction"));
  EXPECT_THAT(refusal("Z", "m=4,n=5,k=8"), HasSubstr("Z is no stage of through_others"));
}

TEST(ExpandTest, PointsComputeTheDefinition) {
  for (const auto& [op, shape] : {std::pair("chamfer", "b=2,m=37,n=50"),
                                  {"through_others", "m=40,n=33,k=3"},
                                  {"windows", "n=35"}}) {
    SCOPED_TRACE(op);
    ExpectPointsCompute(Made(op, shape), *FindTarget("h100"), " expand/");
  }
}

// Nothing has an element for each pair of points.
TEST(ExpandTest, DistancesAreNotStored) {
  const auto program = Made("chamfer", "b=2,m=64,n=96");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const std::vector<Point> points = DrawnPoints(space, 5, BeginsWith("expand/"));
  EXPECT_EQ(points.size(), 5);
  for (const Point& point : points) {
    const Program lowered = *space.Lower(point);
    for (const BufferRef& workspace : lowered.workspaces) {
      EXPECT_LT(workspace->elements, 2 * 64 * 96) << space.Print(point);
    }
  }
}

}  // namespace
}  // namespace heddle::search_space::expand_test
