// Reductions of the prefixes of rows and reductions of these rows, in one kernel: which of them are
// rows, and what kernels compute.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::scanned_rows_test {
namespace {

constexpr const char* kOperators = R"(
op sum_of_sums(m, n) {
  in X[m, n]
  C[i: m, j: n] = sum(r: n) select(r <= j, X[i, r], 0)
  out Y[i: m] = sum(j: n) C[i, j]
}
op relative(m, n) {
  in X[m, n], G[n]
  C[i: m, j: n] = sum(r: n) select(r <= j, X[i, r] * G[r], 0)
  M[i: m] = max(j: n) C[i, j] + X[i, j]
  out Y[i: m, j: n] = M[i] - C[i, j]
}
op suffixes(m, n) {
  in X[m, n]
  A[i: m, j: n] = abs(X[i, j])
  C[i: m, j: n] = max(r: n) select(r > j, A[i, r], -1.0e30)
  S[i: m] = sum(j: n) select(j + 1 < n, C[i, j], 0)
  out Y[i: m] = S[i] + 1
}
op twice(m, n) {
  in X[m, n]
  C[i: m, j: n] = sum(r: n) select(r < j, X[i, r], 0)
  D[i: m, j: n] = max(r: n) select(r <= j, C[i, r], -1.0e30)
  out Y[i: m] = sum(j: n) D[i, j] - C[i, j]
}
op behind(m, n) {
  in X[m, n]
  S[i: m] = sum(j: n) X[i, j]
  C[i: m, j: n] = sum(r: n) select(r <= j, X[i, r] - S[i], 0)
  out Y[i: m, j: n] = C[i, j] * 2
}
)";

struct Case {
  const char *op, *shape, *like;
};

class ScannedRows : public testing::TestWithParam<Case> {};

TEST_P(ScannedRows, ComputeTheirProgram) {
  ExpectPointsCompute(
      InstantiatedFrom(kOperators, GetParam().op, GetParam().shape, DType::kFloat32),
      *FindTarget("h100"), GetParam().like);
}

INSTANTIATE_TEST_SUITE_P(All, ScannedRows,
                         testing::Values(Case{"sum_of_sums", "m=5,n=300", " rows: "},
                                         Case{"sum_of_sums", "m=3,n=64", " rows: "},
                                         Case{"relative", "m=5,n=300", " rows: "},
                                         Case{"relative", "m=2,n=1000", " rows: "},
                                         Case{"suffixes", "m=5,n=100", " rows: "},
                                         Case{"twice", "m=5,n=100", " rows: "},
                                         Case{"behind", "m=5,n=300", " rows: "}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.op, "_", info.index);
                         });

// One kernel that reads the rows once is drawn as often as half of all that scan in chunks.
TEST(ScannedRowsTest, OneKernelIsDrawnOften) {
  const auto program = InstantiatedFrom(kOperators, "sum_of_sums", "m=64,n=1024", DType::kFloat32);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  static constexpr int kDraws = 200;
  Rng rng(1);
  int rows = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    rows += absl::StartsWith(space.Print(*space.Sample(rng)), "rows: ") ? 1 : 0;
  }
  EXPECT_GT(rows, kDraws / 5);
}

// Rows that no block can hold are left to kernels of parts.
TEST(ScannedRowsTest, LongRowsAreNone) {
  const auto program =
      InstantiatedFrom(kOperators, "sum_of_sums", "m=2,n=1000000", DType::kFloat32);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  Rng rng(1);
  for (int draw = 0; draw < 50; ++draw) {
    const std::string text = space.Print(*space.Sample(rng));
    EXPECT_FALSE(absl::StartsWith(text, "rows: ")) << text;
  }
}

}  // namespace
}  // namespace heddle::search_space::scanned_rows_test
