// Products that share a factor: which are one product with an axis that numbers them, and that
// schedules of that compute the definition, with boxes of each tensor.
#include "search_space/schedule/rewrites/reductions/stack_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::stack_products_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op gated(m, n, k) {
  in X[m, k], U[n, k], V[n, k]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[j, r]
  Q[i: m, j: n] = sum(r: k) V[j, r] * X[i, r]
  out Y[i: m, j: n] = max(P[i, j], 0) * Q[i, j]
}
op biased(m, n, k) {
  in X[m, k], U[k, n], V[k, n], B[n]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[r, j]
  G[i: m, j: n] = max(P[i, j] + B[j], 0)
  Q[i: m, j: n] = sum(r: k) X[i, r] * V[r, j]
  out Y[i: m, j: n] = G[i, j] * (Q[i, j] + B[j])
}
op three(m, n, k) {
  in X[m, k], U[n, k], V[n, k], W[n, k]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[j, r]
  Q[i: m, j: n] = sum(r: k) X[i, r] * V[j, r]
  R[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, j: n] = P[i, j] * Q[i, j] + R[i, j]
}
op behind(m, n, k) {
  in X[m, k], U[n, k], V[n, k], D[k, n]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[j, r]
  Q[i: m, j: n] = sum(r: k) X[i, r] * V[j, r]
  H[i: m, j: n]: bfloat16 = max(P[i, j], 0) * Q[i, j]
  out Y[i: m, x: k] = sum(j: n) H[i, j] * D[x, j]
}
op with_tangent(m, n, k) {
  in X[m, k], D[m, k], W[n, k], B[n]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
  Q[i: m, j: n] = sum(r: k) D[i, r] * W[j, r]
  Z[i: m, j: n] = P[i, j] + B[j]
  out Y[i: m, j: n] = max(Z[i, j], 0)
  out T[i: m, j: n] = select(Z[i, j] > 0, Q[i, j], 0)
}
op reduced_apart(m, n, k) {
  in X[m, k], U[n, k], V[n, k]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[j, r]
  Q[i: m, j: n] = sum(r: k) X[i, r] * V[j, r]
  M[i: m] = max(j: n) P[i, j]
  out Y[i: m, j: n] = Q[i, j] - M[i]
}
op read_alone(m, n, k) {
  in X[m, k], U[n, k], V[n, k]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[j, r]
  Q[i: m, j: n] = sum(r: k) X[i, r] * V[j, r]
  out Y[i: m, j: n] = P[i, j] * Q[i, j]
  out Z[i: m, j: n] = 2 * Q[i, j]
}
op nothing_shared(m, n, k) {
  in X[m, k], U[n, k], V[n, k], Z[m, k]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[j, r]
  Q[i: m, j: n] = sum(r: k) Z[i, r] * V[j, r]
  out Y[i: m, j: n] = P[i, j] * Q[i, j]
}
op other_layout(n) {
  in X[n, n], U[n, n], V[n, n]
  P[i: n, j: n] = sum(r: n) X[i, r] * U[j, r]
  Q[i: n, j: n] = sum(r: n) X[i, r] * V[r, j]
  out Y[i: n, j: n] = P[i, j] * Q[i, j]
}
op made_between(m, n, k) {
  in X[m, k], U[n, k], V[n, k]
  P[i: m, j: n] = sum(r: k) X[i, r] * U[j, r]
  W[j: n, r: k]: bfloat16 = 2 * V[j, r]
  Q[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, j: n] = P[i, j] * Q[i, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

TEST(StackProductsTest, AreOneProduct) {
  const auto gated = *WithStackedProducts(*Made("gated", "m=3,n=4,k=5"), "P");
  ASSERT_EQ(gated->stages.size(), 2);
  EXPECT_EQ(gated->stages[0].tensor->shape, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_THAT(ToString(gated->stages[0].body), HasSubstr("select(P.place < 1, U[j, r], V[j, r])"));
  EXPECT_THAT(ToString(gated->stages[1].body), HasSubstr("P[1, i, j]"));
  for (const auto& [op, products] : {std::pair("biased", 2),
                                     {"three", 3},
                                     {"behind", 2},
                                     {"with_tangent", 2},
                                     {"read_alone", 2}}) {
    const auto program = Made(op, "m=3,n=4,k=5");
    const auto stacked = *WithStackedProducts(*program, "P");
    EXPECT_EQ(stacked->stages.size(), program->stages.size() - (products - 1)) << op;
    TensorValues expected = IntegerInputs(*program), got = expected;
    EvaluateAll(*program, expected);
    EvaluateAll(*stacked, got);
    EXPECT_EQ(got.at("Y"), expected.at("Y")) << op;
  }
}

TEST(StackProductsTest, OthersAreRefused) {
  for (const char* op : {"nothing_shared", "made_between", "reduced_apart"}) {
    EXPECT_THAT(std::string(WithStackedProducts(*Made(op, "m=3,n=4,k=5"), "P").status().message()),
                HasSubstr("P is no product that shares a factor"))
        << op;
  }
  EXPECT_FALSE(WithStackedProducts(*Made("other_layout", "n=4"), "P").ok());
  EXPECT_FALSE(WithStackedProducts(*Made("gated", "m=3,n=4,k=5"), "Y").ok());
}

TEST(StackProductsTest, PointsComputeTheDefinition) {
  const Target target = *FindTarget("h100");
  ExpectPointsCompute(Made("gated", "m=37,n=40,k=64"), target, " stacked/warpgroup_places:");
  ExpectPointsCompute(Made("biased", "m=65,n=24,k=40"), target, " stacked/warpgroup_places:");
  ExpectPointsCompute(Made("three", "m=40,n=48,k=64"), target, " stacked/warpgroup_places:");
  // One kernel for both outputs.
  ExpectPointsCompute(Made("with_tangent", "m=37,n=40,k=64"), target, " stacked/warpgroup_places:");
  ExpectPointsCompute(Made("gated", "m=37,n=40,k=48"), *FindTarget("a100"),
                      " stacked/matrix_places:");
}

// Bulk copies bring boxes of each of the tensors.
TEST(StackProductsTest, BoxesAreOfEachTensor) {
  const auto program = Made("three", "m=24,n=64,k=64");
  const SearchSpace space = *SearchSpace::Create(program, *FindTarget("h100"));
  const std::vector<Point> points = DrawnPoints(space, 4, [](const std::string& text) {
    return absl::StartsWith(text, "stacked/warpgroup_places:") &&
           absl::StrContains(text, " bulk=1");
  });
  ASSERT_FALSE(points.empty());
  for (const Point& point : points) {
    const auto lowered = space.Lower(point);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const std::string loops = ToString(*lowered);
    for (const char* tensor : {"X", "U", "V", "W"}) {
      EXPECT_THAT(loops,
                  ContainsRegex(absl::StrCat("bulk_copy P.*operand[^=]* = ", tensor, "\\[")));
    }
    ExpectComputes(*program, *lowered, 1);
  }
}

}  // namespace
}  // namespace heddle::search_space::stack_products_test
