// Statistics of the rows that another kernel makes: in that kernel.
#include "search_space/sketch/kernels/row_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/lower/lower.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::row_statistics_test {
namespace {

constexpr const char* kOperators = R"(
op logits(m, v, k) {
  in X[m, k], W[v, k]
  U[i: m, j: v] = sum(r: k) X[i, r] * W[j, r]
  M[i: m] = max(j: v) U[i, j]
  S[i: m] = sum(j: v) abs(U[i, j] - M[i])
  out Y[i: m, j: v] = U[i, j]
  out L[i: m]: float32 = S[i] + M[i]
}
op heads(b, h, s, d, k) {
  in X[b, s, k], W[h, d, k]
  U[z: b, p: h, i: s, x: d] = sum(r: k) X[z, i, r] * W[p, x, r]
  out Y[z: b, p: h, i: s, x: d] = U[z, p, i, x]
  out N[z: b, p: h, i: s]: float32 = sum(x: d) U[z, p, i, x] * U[z, p, i, x]
}
op square(n, k) {
  in X[n, k], W[n, k]
  U[i: n, j: n] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: n, j: n] = U[i, j] * 2
  out R[i: n]: float32 = sum(j: n) U[i, j]
  out T[i: n]: float32 = sum(j: n) U[j, i]
}
op needed(m, v, k) {
  in X[m, k], W[v, k]
  U[i: m, j: v] = sum(r: k) X[i, r] * W[j, r]
  S[i: m] = sum(j: v) U[i, j]
  out Y[i: m, j: v] = U[i, j] + S[i]
  out Z[i: m, j: v] = U[i, j] * S[i] * S[i]
}
op of_others(m, v, k) {
  in X[m, k], W[v, k], G[m, v]
  U[i: m, j: v] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, j: v] = U[i, j] * 2
  out L[i: m]: float32 = max(j: v) G[i, j]
}
)";

struct Case {
  const char *op, *shape;
  DType type;
  const char *rules, *statistics;
  int64_t kernels_of_product = 2;  // in which it is, that which makes it among them
};

class RowStatistics : public testing::TestWithParam<Case> {};

TEST_P(RowStatistics, AreMadeByTheKernelOfTheRows) {
  const Case& c = GetParam();
  const auto program = InstantiatedFrom(kOperators, c.op, c.shape, c.type);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const std::string suffix = absl::StrCat("[statistics=", c.statistics, "]");
  const auto is_wanted = [&](const std::string& text) {
    return text.starts_with(c.rules) && absl::StrContains(text, suffix);
  };
  const double rounding = c.type == DType::kFloat32 ? 1e-5 : 1.0 / 128;
  ForDrawnPoints(space, 4, is_wanted, inputs, [&](const Program& lowered, const TensorValues& got) {
    EXPECT_EQ(KernelsWith(lowered, "Y"), 1);
    EXPECT_EQ(KernelsWith(lowered, "U"), c.kernels_of_product);
    ExpectOutputsNear(*program, expected, got, rounding);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, RowStatistics,
    testing::Values(Case{"logits", "m=9,v=67,k=5", DType::kFloat32, "parts/tile+rows[merged=M]",
                         "M.acc|S"},
                    Case{"logits", "m=40,v=96,k=16", DType::kBFloat16,
                         "parts/warpgroup+rows[merged=M]", "M.acc|S"},
                    Case{"heads", "b=2,h=3,s=10,d=33,k=4", DType::kFloat32, "tile+rows", "N.acc"},
                    // Rows, not columns, whose axes are as long as these.
                    Case{"square", "n=33,k=7", DType::kFloat32, "tile+rows+", "R.acc", 3}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

TEST(RowStatisticsTest, OthersHaveKernelsOfTheirOwn) {
  for (const char* op : {"needed", "of_others"}) {
    const auto program = InstantiatedFrom(kOperators, op, "m=9,v=67,k=5", DType::kFloat32);
    const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
    const auto is_joined = [](const std::string& text) {
      return absl::StrContains(text, "[statistics=");
    };
    EXPECT_TRUE(DrawnPoints(space, 1, is_joined, 1, 300).empty()) << op;
  }
}

}  // namespace
}  // namespace heddle::search_space::row_statistics_test
