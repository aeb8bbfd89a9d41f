// The fewest operations of a program, which say what times are plausible.
#include <gtest/gtest.h>

#include "search_space/notation/notation.h"
#include "search_space/sketch/programs/least_flops.h"

namespace heddle::search_space {
namespace {

// LeastFlops as a share of all operations of the definition.
double LeastShare(const char* text, const char* shape) {
  const auto parsed = ParseOperators(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto program = parsed->at(0).Instantiate(*ParseShape(shape), DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return LeastFlops(*program) / program->Flops();
}

TEST(LeastFlops, CountWhatMasksLeave) {
  const char* attention =
      "op f(b, s, d) { in Q[b, s, d], K[b, s, d], V[b, s, d] "
      "T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r] "
      "M[z: b, i: s] = max(r: s) select(r <= i, T[z, i, r], -3.0e38) "
      "E[z: b, i: s, j: s] = select(j <= i, exp(T[z, i, j] - M[z, i]), 0) "
      "L[z: b, i: s] = sum(r: s) E[z, i, r] "
      "O[z: b, i: s, j: d] = sum(r: s) E[z, i, r] * V[z, r, j] "
      "out Y[z: b, i: s, j: d] = O[z, i, j] / L[z, i] }";
  EXPECT_NEAR(LeastShare(attention, "b=16,s=1024,d=64"), 0.5, 0.03);
  const char* triangle =
      "op f(m, n) { in A[m, m], B[m, n] "
      "out C[i: m, j: n] = sum(r: m) select(r <= i, A[i, r], 0) * B[r, j] }";
  EXPECT_NEAR(LeastShare(triangle, "m=1024,n=64"), 0.5, 0.03);
  // Never more than there are.
  EXPECT_NEAR(LeastShare(triangle, "m=3,n=8"), 6.0 / 9, 1e-6);
  // A band of 65 of 1,024, two comparisons at once.
  const char* band =
      "op f(n) { in A[n, n], B[n, n] out C[i: n, j: n] = "
      "sum(r: n) select(r <= i + 32 && i <= r + 32, A[i, r], 0) * B[r, j] }";
  EXPECT_NEAR(LeastShare(band, "n=1024"), 64.0 / 1024, 0.04);
}

TEST(LeastFlops, CountWhatTermsShareOnce) {
  // Of six operations a term four are for each row.
  const char* rows =
      "op f(m, n, k) { in A[m, k], B[k, n], S[m, k] "
      "out C[i: m, j: n] = sum(r: k) A[i, r] * (exp(S[i, r]) + sqrt(A[i, r])) * B[r, j] }";
  EXPECT_NEAR(LeastShare(rows, "m=64,n=1024,k=64"), 2.0 / 6, 1e-2);
  // Of a product of three the two that have fewer axes.
  const char* scaled =
      "op f(m, n, k) { in A[m, k], B[k, n], S[k] "
      "out C[i: m, j: n] = sum(r: k) A[i, r] * B[r, j] * S[r] }";
  EXPECT_NEAR(LeastShare(scaled, "m=1024,n=1024,k=64"), 2.0 / 3, 1e-2);
}

// A term is added where it belongs, if it belongs anywhere.
TEST(LeastFlops, AnIndexMayNameNoPlace) {
  const char* groups =
      "op f(m, n, d) { in X[m, d], I[m]: index(n) "
      "out Y[i: n, j: d] = sum(r: m) select(I[r] == i, X[r, j], 0) }";
  EXPECT_EQ(LeastShare(groups, "m=1000,n=50,d=8"), 0);
}

TEST(LeastFlops, DataDecidesNothing) {
  for (const char* text :
       {"op f(n) { in A[n, n], B[n, n] out C[i: n, j: n] = "
        "sum(r: n) select(A[i, r] > 0, A[i, r], 0) * B[r, j] }",
        "op f(n) { in A[n, n], B[n, n] out C[i: n, j: n] = "
        "sum(r: n) select(r <= i, A[i, r], 1) * B[r, j] }",
        "op f(n) { in A[n, n], B[n, n] out C[i: n, j: n] = sum(r: n) A[i, r] * B[r, j] }"}) {
    EXPECT_EQ(LeastShare(text, "n=256"), 1) << text;
  }
}

}  // namespace
}  // namespace heddle::search_space
