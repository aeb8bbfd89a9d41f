// Programs of sites: which they are, and that one kernel computes what their definition says.
#include "search_space/sketch/patterns/sites.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::sites_test {
namespace {

constexpr const char* kOperators = R"(
op solve2(m) {
  in G[m, 2, 2], B[m, 2]
  S[i: m, a: 2, b: 2] = sum(r: 2) G[i, r, a] * G[i, r, b]
  C[i: m, a: 2] = sum(r: 2) G[i, r, a] * B[i, r]
  D[i: m] = 1 / (S[i, 0, 0] * S[i, 1, 1] - S[i, 0, 1] * S[i, 0, 1] + 1)
  out Y[i: m, a: 2] = select(a == 0, S[i, 1, 1] * C[i, 0] - S[i, 0, 1] * C[i, 1],
      S[i, 0, 0] * C[i, 1] - S[i, 0, 1] * C[i, 0]) * D[i]
  out L[i: m] = log(D[i] * D[i] + 1)
}
op tridiagonal3(m) {
  in A[3, m], B[3, m], C[3, m], D[3, m]
  P[k: 3, i: m] = abs(B[k, i]) + abs(A[k, i]) + abs(C[k, i]) + 1
  C0[i: m] = C[0, i] / P[0, i]
  D0[i: m] = D[0, i] / P[0, i]
  R1[i: m] = 1 / (P[1, i] - A[1, i] * C0[i])
  C1[i: m] = C[1, i] * R1[i]
  D1[i: m] = (D[1, i] - A[1, i] * D0[i]) * R1[i]
  X2[i: m] = (D[2, i] - A[2, i] * D1[i]) / (P[2, i] - A[2, i] * C1[i])
  X1[i: m] = D1[i] - C1[i] * X2[i]
  out Y[k: 3, i: m] = select(k == 0, D0[i] - C0[i] * X1[i], select(k == 1, X1[i], X2[i]))
}
op powers(m) {
  in A[m, 4, 4]
  B[i: m, a: 4, b: 4] = A[i, a, b] / 64
  P1[i: m, a: 4, b: 4] = sum(r: 4) B[i, a, r] * B[i, r, b]
  Q1[i: m, a: 4, b: 4] = P1[i, a, b] + select(a == b, 1, 0)
  P2[i: m, a: 4, b: 4] = sum(r: 4) Q1[i, a, r] * Q1[i, r, b]
  Q2[i: m, a: 4, b: 4] = P2[i, a, b] / 2 + select(a == b, 1, 0)
  P3[i: m, a: 4, b: 4] = sum(r: 4) Q2[i, a, r] * Q2[i, r, b]
  Q3[i: m, a: 4, b: 4] = P3[i, a, b] / 2 + select(a == b, 1, 0)
  P4[i: m, a: 4, b: 4] = sum(r: 4) Q3[i, a, r] * Q3[i, r, b]
  Q4[i: m, a: 4, b: 4] = P4[i, a, b] / 2 + select(a == b, 1, 0)
  P5[i: m, a: 4, b: 4] = sum(r: 4) Q4[i, a, r] * Q4[i, r, b]
  Q5[i: m, a: 4, b: 4] = P5[i, a, b] / 2 + select(a == b, 1, 0)
  out Y[i: m, a: 4, b: 4] = sum(r: 4) Q5[i, a, r] * Q5[i, r, b]
}
op pool_with_places(n, h, w) {
  in X[n, 2 * h + 1, 2 * w + 1]
  out Y[b: n, y: h, x: w] = max(r: 3, s: 3) X[b, 2 * y + r, 2 * x + s]
  P[b: n, y: h, x: w] = argmax(q: 9) X[b, 2 * y + q / 3, 2 * x + q % 3]
  R[b: n, y: h, x: w] = select(P[b, y, x] >= 6, 2, select(P[b, y, x] >= 3, 1, 0))
  out I[b: n, y: h, x: w] = (2 * y + R[b, y, x]) * (2 * w + 1) + 2 * x + P[b, y, x] - 3 * R[b, y, x]
}
op padded_pools(n, h, w) {
  in X[n, h, w]
  P[b: n, y: h + 2, x: w + 2] = select(y >= 1 && y < h + 1 && x >= 1 && x < w + 1, X[b, y - 1, x - 1], 0)
  M[b: n, y: h, x: w] = max(r: 3, s: 3) P[b, y + r, x + s]
  A[b: n, y: h, x: w] = sum(r: 3, s: 3) P[b, y + r, x + s]
  out Y[b: n, y: h, x: w] = M[b, y, x] - A[b, y, x] / 9
}
op prefixes(z, d) {
  in X[z, 8, d], A[z, 8, d]
  P[u: z, i: 8, x: d] = sum(r: 8) select(r <= i, -0.1 * abs(A[u, r, x]), 0)
  out H[u: z, i: 8, x: d] = sum(r: 8) select(r <= i, exp(P[u, i, x] - P[u, r, x]) * X[u, r, x], 0)
}
op read_outputs(m) {
  in X[m, 4], W[4, 4]
  S[i: m, a: 4] = sum(r: 4) X[i, r] * W[r, a]
  out Q[i: m, a: 4] = S[i, a] * 0.5
  N[i: m] = sum(a: 4) Q[i, a] * Q[i, a]
  out U[i: m, a: 4] = Q[i, a] / sqrt(N[i] + 1)
}
op gathered(m, v) {
  in X[v, 4], I[m]: index(v)
  M[i: m] = max(a: 4) X[I[i], a]
  E[i: m, a: 4] = exp((X[I[i], a] - M[i]) / 8)
  S[i: m] = sum(a: 4) E[i, a]
  out Y[i: m, a: 4] = E[i, a] / S[i]
}
op swapped_rows(m) {
  in X[m, m, 3]
  S[i: m, j: m] = sum(r: 3) X[i, j, r]
  T[i: m, j: m] = max(r: 3) X[j, i, r]
  out Y[i: m, j: m] = S[i, j] * T[i, j] + S[i, j]
}
op rgb_to_hsv(n, h, w) {
  in X[n, 3, h, w]
  M[b: n, y: h, x: w] = max(c: 3) X[b, c, y, x]
  L[b: n, y: h, x: w] = min(c: 3) X[b, c, y, x]
  D[b: n, y: h, x: w]: bfloat16 = M[b, y, x] - L[b, y, x]
  out Y[b: n, c: 3, y: h, x: w] = select(c == 0, D[b, y, x] * 2, select(c == 1, D[b, y, x] / (abs(M[b, y, x]) + 1), M[b, y, x]))
}
op of_neighbours(m) {
  in X[m + 1, 3]
  N[i: m + 1] = sum(a: 3) X[i, a] * X[i, a]
  out Y[i: m] = sqrt(N[i] + N[i + 1] * N[i + 1] + 1)
}
op long_sums(m, k) {
  in X[m, k]
  N[i: m] = sum(a: k) X[i, a] * X[i, a]
  M[i: m] = max(a: k) X[i, a]
  out Y[i: m] = sqrt(N[i] + M[i] * M[i] + 1)
}
op chosen(m) {
  in X[m, 4], I[m]: index(4)
  S[i: m, a: 4] = sum(r: 4) X[i, r] * X[i, a]
  out Y[i: m] = S[i, I[i]] + S[i, 0]
}
op one_sum(m) {
  in X[m, 4], W[4]
  out Y[i: m] = sum(a: 4) X[i, a] * W[a]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kFloat32) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

// "sites / own: held"; "" where it is no program of sites.
std::string Found(const std::string& op, const std::string& shape) {
  const ProgramShape shaped = FuseSites(Made(op, shape));
  if (shaped.kernels.empty()) return "";
  const auto sites = FindSites(shaped, shaped.kernels[0]);
  if (!sites.has_value()) return "";
  const auto name = [](std::string* out, const StageRef& s) { out->append(s.name()); };
  return absl::StrJoin(sites->sites, " ") + " / " + absl::StrJoin(sites->own, " ") + ": " +
         absl::StrJoin(sites->held, " ", name);
}

TEST(SitesTest, AreWhatOneThreadComputes) {
  EXPECT_EQ(Found("solve2", "m=4096"), "0 / 1: S.acc C.acc D Y.local L.local");
  EXPECT_EQ(Found("tridiagonal3", "m=4096"), "1 / 0: P C0 D0 R1 C1 D1 X2 X1");
  EXPECT_EQ(Found("prefixes", "z=4,d=1024"), "0 2 / 1: P.acc H.acc");
  EXPECT_EQ(Found("read_outputs", "m=4096"), "0 / 1: S Q.local N.acc U.local");
  EXPECT_EQ(Found("gathered", "m=4096,v=100"), "0 / 1: M.acc E S.acc");
  EXPECT_EQ(Found("padded_pools", "n=2,h=48,w=48"), "0 1 2 / : M A");
  EXPECT_EQ(Found("long_sums", "m=4096,k=8"), "0 / : N M");
}

// 192 elements in all, of which a few matrices are needed at a time.
TEST(SitesTest, KeepWhatIsNeededAtOnce) {
  const ProgramShape shaped = FuseSites(Made("powers", "m=4096"));
  const auto sites = FindSites(shaped, shaped.kernels[0]);
  ASSERT_TRUE(sites.has_value());
  EXPECT_EQ(sites->held.size(), 12U);
  EXPECT_LE(sites->elements, 48);
}

TEST(SitesTest, AreNotOfOtherPointsResultsOrLongTerms) {
  EXPECT_EQ(Found("of_neighbours", "m=4096"), "");
  EXPECT_EQ(Found("long_sums", "m=4096,k=256"), "");
  EXPECT_EQ(Found("chosen", "m=4096"), "");
  EXPECT_EQ(Found("one_sum", "m=4096"), "");  // nothing is read again
  EXPECT_EQ(Found("solve2", "m=100"), "");    // too few for a device
}

struct Case {
  const char *op, *shape;
  DType type = DType::kFloat32;
  double error = 1e-5;
};

class SitesKernels : public testing::TestWithParam<Case> {};

TEST_P(SitesKernels, ComputeTheirProgram) {
  const auto program = Made(GetParam().op, GetParam().shape, GetParam().type);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 16, BeginsWith("sites"), inputs,
                 [&](const Program& lowered, const TensorValues& got) {
                   EXPECT_EQ(lowered.kernels.size(), 1);
                   ExpectOutputsNear(*program, expected, got, GetParam().error);
                 });
}

INSTANTIATE_TEST_SUITE_P(
    All, SitesKernels,
    testing::Values(Case{"solve2", "m=2100"}, Case{"tridiagonal3", "m=2100"},
                    Case{"tridiagonal3", "m=2099"}, Case{"pool_with_places", "n=2,h=37,w=34"},
                    Case{"padded_pools", "n=2,h=37,w=36"}, Case{"prefixes", "z=3,d=700"},
                    Case{"read_outputs", "m=2100"}, Case{"powers", "m=2100", DType::kFloat32, 1e-4},
                    Case{"gathered", "m=2100,v=50"}, Case{"swapped_rows", "m=50"},
                    Case{"rgb_to_hsv", "n=2,h=33,w=36"},
                    Case{"rgb_to_hsv", "n=2,h=33,w=36", DType::kFloat16, 1e-2},
                    Case{"read_outputs", "m=2100", DType::kBFloat16, 1e-2},
                    Case{"gathered", "m=2100,v=50", DType::kFloat16, 2e-3}),
    [](const testing::TestParamInfo<Case>& info) {
      return std::string(info.param.op) + std::to_string(info.index);
    });

}  // namespace
}  // namespace heddle::search_space::sites_test
