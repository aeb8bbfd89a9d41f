// Products whose rows are reduced and stored in one kernel, where a tile has whole rows: which they
// are, and what kernels compute.
#include "search_space/sketch/matrix/whole_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::whole_rows_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kOperators = R"(
op heads(m, k, h, d) {
  in X[m, k], W[h * d, k], G[d]
  T[i: m, p: h, x: d] = sum(r: k) X[i, r] * W[p * d + x, r]
  Q[i: m, p: h] = sum(x: d) T[i, p, x] * T[i, p, x]
  out Y[i: m, p: h, x: d] = T[i, p, x] * rsqrt(Q[i, p] / d + 1) * G[x]
}
op router(m, k, e) {
  in X[m, k], W[e, k]
  T[i: m, j: e] = sum(r: k) X[i, r] * W[j, r]
  M[i: m] = max(j: e) T[i, j]
  E[i: m, j: e] = exp(0.01 * (T[i, j] - M[i]))
  S[i: m] = sum(j: e) E[i, j]
  out Y[i: m, j: e] = E[i, j] / S[i]
}
op normed(m, k, n) {
  in X[m, k], W[k, n], B[n], G[n], R[m, n]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  U[i: m, j: n] = T[i, j] + B[j] + R[i, j]
  M[i: m] = sum(j: n) U[i, j]
  V[i: m] = sum(j: n) pow(U[i, j] - M[i] / n, 2)
  out Y[i: m, j: n] = (U[i, j] - M[i] / n) * rsqrt(V[i] / n + 1) * G[j]
}
op followed(m, k, n) {
  in X[m, k], W[k, n], V[n, n]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(j: n) T[i, j]
  P[i: m, j: n]: bfloat16 = T[i, j] - M[i]
  out Y[i: m, j: n] = sum(r: n) P[i, r] * V[r, j]
}
op assigned(m, k, e, x) {
  in X[m, k], W[e, k], V[m, x]
  T[i: m, j: e] = sum(r: k) X[i, r] * W[j, r]
  M[i: m] = max(j: e) T[i, j]
  P[i: m, j: e]: bfloat16 = T[i, j] - M[i]
  out Y[j: e, y: x] = sum(i: m) P[i, j] * V[i, y]
}
op read_elsewhere(m, k, n) {
  in X[m, k], W[k, n]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(j: n) T[i, j]
  out Y[i: m, j: n] = T[i, j] - M[i]
  out Z[j: n] = max(i: m) T[i, j]
}
op columns(m, k, n) {
  in X[m, k], W[k, n]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  M[j: n] = max(i: m) T[i, j]
  out Y[i: m, j: n] = T[i, j] - M[j]
}
op other_row(m, k) {
  in X[m, k], W[k, m]
  T[i: m, j: m] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(j: m) T[i, j]
  out Y[i: m, j: m] = T[i, j] - M[j]
}
op transposed(m, k) {
  in X[m, k], W[k, m]
  T[i: m, j: m] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(j: m) T[i, j]
  out Y[j: m, i: m] = T[i, j] - M[i]
}
op shifted(m, k, n) {
  in X[m, k], W[k, n]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(j: n) T[i, j]
  out Y[i: m, j: n] = T[i, (j + 1) % n] - M[i]
}
op flipped(m, k, n) {
  in X[m, k], W[k, n]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(j: n) T[m - 1 - i, j]
  out Y[i: m, j: n] = T[i, j] - M[i]
}
op normed_halves(m, k, d) {
  in X[m, k], W[k, d]
  T[i: m, j: d] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(j: d) T[i, j]
  out Y[i: m, j: d] = T[i, j] + T[i, (j + d / 2) % d] - M[i]
}
op only_reduced(m, k, n) {
  in X[m, k], W[k, n]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  out M[i: m] = max(j: n) T[i, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

std::vector<std::string> RowsOf(const std::string& op, const std::string& shape) {
  std::vector<std::string> found;
  for (const WholeRows& rows : WholeRowsOf(*Made(op, shape))) {
    found.push_back(absl::StrCat(absl::StrJoin(rows.inside, " "), " in ", rows.stored));
  }
  return found;
}

TEST(WholeRowsTest, RowsThatAreReducedAndStored) {
  EXPECT_THAT(RowsOf("heads", "m=4,k=3,h=2,d=8"), ElementsAre("Q T in Y"));
  EXPECT_THAT(RowsOf("router", "m=4,k=3,e=8"), ElementsAre("E M S T in Y"));
  EXPECT_THAT(RowsOf("normed", "m=4,k=3,n=8"), ElementsAre("M T U V in Y"));
  EXPECT_THAT(RowsOf("normed_halves", "m=4,k=3,d=32"), ElementsAre("M T in Y"));
  EXPECT_THAT(RowsOf("columns", "m=8,k=3,n=500"), ElementsAre("M T in Y"));
  EXPECT_THAT(RowsOf("assigned", "m=8,k=3,e=16,x=5"), ElementsAre("M T in P"));
}

TEST(WholeRowsTest, OthersAreNone) {
  EXPECT_THAT(RowsOf("heads", "m=4,k=3,h=2,d=264"), IsEmpty()) << "longer than a tile";
  EXPECT_THAT(RowsOf("followed", "m=4,k=3,n=8"), IsEmpty()) << "by another product";
  EXPECT_THAT(RowsOf("read_elsewhere", "m=400,k=3,n=8"), IsEmpty());
  EXPECT_THAT(RowsOf("only_reduced", "m=4,k=3,n=8"), IsEmpty());
  // Of which another lane has what is read.
  EXPECT_THAT(RowsOf("other_row", "m=8,k=3"), IsEmpty());
  EXPECT_THAT(RowsOf("transposed", "m=8,k=3"), IsEmpty());
  EXPECT_THAT(RowsOf("shifted", "m=4,k=3,n=8"), IsEmpty());
  EXPECT_THAT(RowsOf("flipped", "m=4,k=3,n=8"), IsEmpty());
  EXPECT_THAT(RowsOf("normed_halves", "m=4,k=3,d=24"), IsEmpty());
}

struct Case {
  const char *op, *shape, *device, *like;
};

class WholeRowsPoints : public testing::TestWithParam<Case> {};

TEST_P(WholeRowsPoints, ComputeTheirProgram) {
  ExpectPointsCompute(Made(GetParam().op, GetParam().shape), *FindTarget(GetParam().device),
                      GetParam().like);
}

INSTANTIATE_TEST_SUITE_P(
    All, WholeRowsPoints,
    testing::Values(Case{"heads", "m=70,k=40,h=2,d=64", "h100", " warpgroup_rows"},
                    Case{"heads", "m=40,k=24,h=2,d=32", "a100", " matrix_rows"},
                    Case{"router", "m=70,k=40,e=32", "h100", " warpgroup_rows"},
                    Case{"router", "m=40,k=24,e=16", "a100", " matrix_rows"},
                    Case{"normed", "m=70,k=40,n=64", "h100", " warpgroup_rows"},
                    Case{"normed", "m=40,k=24,n=32", "a100", " matrix_rows"},
                    Case{"normed_halves", "m=70,k=40,d=64", "h100", " warpgroup_rows"},
                    Case{"normed_halves", "m=40,k=24,d=32", "a100", " matrix_rows"},
                    Case{"columns", "m=64,k=40,n=136", "h100", " warpgroup_rows"},
                    Case{"assigned", "m=70,k=40,e=32,x=24", "h100", " warpgroup_rows+warpgroup"},
                    Case{"assigned", "m=41,k=24,e=16,x=24", "a100", " matrix_rows+matrix"}),
    [](const auto& info) {
      return absl::StrCat(info.param.op, "_", info.param.device, "_", info.index);
    });

}  // namespace
}  // namespace heddle::search_space::whole_rows_test
