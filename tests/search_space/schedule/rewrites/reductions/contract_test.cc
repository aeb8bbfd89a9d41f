// Sums of products of several tensors, a pair at a time: which pairs are made, and that schedules
// of that compute the definition.
#include "search_space/schedule/rewrites/reductions/contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/least_flops.h"
#include "tests/search_space/products.h"

namespace heddle::search_space {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op quadratic(b, n) {
  in X[b, n], A[n, n]
  out Y[z: b] = sum(i: n, j: n) X[z, i] * A[i, j] * X[z, j]
}
op three_matrices(m, n, k, l) {
  in A[m, k], B[k, l], C[l, n]
  out Y[i: m, j: n] = sum(p: k, q: l) A[i, p] * B[p, q] * C[q, j]
}
op four_matrices(n) {
  in A[n, n], B[n, n], C[n, n], D[n, n]
  T[i: n, j: n] = sum(p: n, q: n, r: n) A[i, p] * B[p, q] * C[q, r] * max(D[r, j], 0)
  out Y[i: n, j: n] = T[i, j] + A[i, j]
}
op matmul_scaled(n) {
  in A[n, n], B[n, n], S[n]
  out Y[i: n, j: n] = sum(r: n) A[i, r] * B[r, j] * S[r]
}
op all_of_both(n) {
  in A[n, n], B[n, n]
  out Y[i: n] = sum(r: n, s: n) A[r, s] * B[s, r] * A[i, r]
}
op no_sum(n) {
  in A[n, n], B[n, n], C[n, n]
  out Y[i: n, j: n] = max(p: n, q: n) A[i, p] * B[p, q] * C[q, j]
}
op two_numbers(n) {
  in A[n], B[n]
  out Y[i: n] = sum(p: n, q: n) A[p] * B[q]
}
op large_between(n) {
  in A[n], B[n]
  out Y[i: n, j: n] = sum(p: n, q: n) A[(i + p) % n] * B[(j * 3 + p + q) % n] * A[(j + i + q) % n]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

std::vector<std::string> StagesOf(const TensorProgram& program) {
  std::vector<std::string> stages;
  for (const Stage& s : program.stages) {
    std::string text = absl::StrCat(s.name(), "[");
    for (const Var& v : s.axes) absl::StrAppend(&text, v->name);
    absl::StrAppend(&text, "|");
    for (const Var& v : s.reduce_axes) absl::StrAppend(&text, v->name);
    stages.push_back(absl::StrCat(text, "] = ", ToString(s.body)));
  }
  return stages;
}

TEST(ContractTest, TakesTheFewestOperations) {
  const auto quadratic = WithContractions(*Made("quadratic", "b=8,n=32"), "Y");
  ASSERT_TRUE(quadratic.ok()) << quadratic.status();
  EXPECT_THAT(StagesOf(**quadratic),
              ElementsAre("Y.pair0[zj|i] = X[z, i] * A[i, j]", "Y[z|j] = Y.pair0[z, j] * X[z, j]"));
  // The smaller product first.
  const auto left = WithContractions(*Made("three_matrices", "m=2,n=64,k=32,l=32"), "Y");
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_THAT(StagesOf(**left), ElementsAre("Y.pair0[iq|p] = A[i, p] * B[p, q]",
                                            "Y[ij|q] = Y.pair0[i, q] * C[q, j]"));
  const auto right = WithContractions(*Made("three_matrices", "m=64,n=2,k=32,l=32"), "Y");
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_THAT(StagesOf(**right), ElementsAre("Y.pair0[jp|q] = B[p, q] * C[q, j]",
                                             "Y[ij|p] = Y.pair0[j, p] * A[i, p]"));
  const auto four = WithContractions(*Made("four_matrices", "n=16"), "T");
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ((*four)->stages.size(), 4);
  double terms = 0;
  for (const Stage& s : (*four)->stages) {
    if (s.is_reduction()) terms += 1;
    EXPECT_LE(s.reduce_axes.size(), 1) << s.name();
  }
  EXPECT_EQ(terms, 3);
}

TEST(ContractTest, LeavesAloneWhatSavesNothing) {
  for (const auto& [op, shape] : {std::pair("matmul_scaled", "n=16"),
                                  {"no_sum", "n=16"},
                                  {"two_numbers", "n=32"},
                                  {"large_between", "n=64"}}) {
    EXPECT_THAT(std::string(WithContractions(*Made(op, shape), "Y").status().message()),
                HasSubstr("no sum of products of which some"))
        << op;
  }
  EXPECT_THAT(std::string(WithContractions(*Made("quadratic", "b=8,n=32"), "Z").status().message()),
              HasSubstr("Z is no stage of quadratic"));
}

TEST(ContractTest, CountsForWhatIsPlausible) {
  const auto program = Made("three_matrices", "m=64,n=64,k=64,l=64");
  EXPECT_LT(LeastFlops(*program), 4.1 * 64 * 64 * 64);
}

TEST(ContractTest, PointsComputeTheDefinition) {
  for (const auto& [op, shape] : {std::pair("quadratic", "b=9,n=20"),
                                  {"three_matrices", "m=17,n=12,k=9,l=16"},
                                  {"four_matrices", "n=7"},
                                  {"all_of_both", "n=11"}}) {
    SCOPED_TRACE(op);
    ExpectPointsCompute(Made(op, shape), *FindTarget("h100"), "contract/");
  }
}

}  // namespace
}  // namespace heddle::search_space
