// Axes that lie together in a factor, as one: which those are, what a program becomes, and what is
// refused.
#include "search_space/schedule/rewrites/axes/merge_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/form.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::merge_axes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kOperators = R"(
op outer_mean(s, n, c, o) {
  in A[s, n, c], B[s, n, c], W[c, c, o]
  P[i: n, j: n, x: c, y: c] = sum(t: s) A[t, i, x] * B[t, j, y]
  M[i: n, j: n, x: c, y: c]: bfloat16 = P[i, j, x, y] / s
  out Y[i: n, j: n, q: o] = sum(x: c, y: c) M[i, j, x, y] * W[x, y, q]
}
op one_tensor(s, n, c) {
  in A[s, n, c]
  P[i: n, j: n, x: c, y: c] = sum(t: s) A[t, i, x] * A[t, j, y]
  out Y[i: n, j: n] = max(x: c, y: c) P[i, j, x, y]
}
op computed_factor(s, n, c) {
  in A[s, n, c], G[c], B[s, n]
  D[t: s, i: n, x: c]: bfloat16 = A[t, i, x] * G[x]
  P[i: n, j: n, x: c] = sum(t: s) D[t, i, x] * B[t, j]
  out Y[i: n, j: n, x: c] = P[i, j, x] + P[j, i, x] + D[0, i, x]
}
op also_read_otherwise(s, n, c) {
  in A[s, n, c], B[s, n]
  P[i: n, j: n, x: c] = sum(t: s) A[t, i, x] * B[t, j]
  out Y[i: n, j: n, x: c] = P[i, j, x] + A[i, n - 1 - j, x]
}
op together(s, n, c) {
  in A[s, n, c], B[s, n]
  P[i: n, x: c, j: n] = sum(t: s) A[t, i, x] * B[t, j]
  out Y[i: n, x: c, j: n] = max(P[i, x, j], 0)
}
op output(s, n, c) {
  in A[s, n, c], B[s, n]
  out P[i: n, j: n, x: c] = sum(t: s) A[t, i, x] * B[t, j]
}
op basis(m, n, o, k) {
  in X[m, n], C[k], W[o, n, k]
  H[i: m, r: n, g: k]: bfloat16 = X[i, r] * C[g] + X[i, r]
  out Y[i: m, q: o] = sum(r: n, g: k) H[i, r, g] * W[q, r, g]
}
op transposed_terms(m, n, o, k) {
  in X[m, n, k], W[o, k, n]
  out Y[i: m, q: o] = sum(r: n, g: k) X[i, r, g] * W[q, g, r]
}
op shared(s, n, c) {
  in A[s, n, c], B[s, n, n]
  P[i: n, j: n, x: c] = sum(t: s) A[t, i, x] * B[t, i, j]
  out Y[i: n, j: n, x: c] = max(P[i, j, x], 0)
}
)";

TensorProgram Made(const std::string& op, const std::string& shape, DType type = DType::kBFloat16) {
  return *InstantiatedFrom(kOperators, op, shape, type);
}

std::vector<std::string> MergesOf(TensorProgram program) {
  std::vector<std::string> merges;
  for (const auto& [stage, outer, inner] : AxesWorthMerging(program)) {
    merges.push_back(absl::StrCat(stage, " ", outer, " ", inner));
    program = **WithMergedAxes(program, stage, outer, inner);
  }
  EXPECT_THAT(AxesWorthMerging(program), IsEmpty());
  return merges;
}

TEST(MergeAxesTest, RowsOfOneFactorAreOneAxis) {
  EXPECT_THAT(MergesOf(Made("outer_mean", "s=4,n=3,c=8,o=2")), ElementsAre("P i x", "P j y"));
  EXPECT_THAT(MergesOf(Made("one_tensor", "s=4,n=3,c=8")), ElementsAre("P i x", "P j y"));
  EXPECT_THAT(MergesOf(Made("computed_factor", "s=4,n=3,c=8")), ElementsAre("P i x"));
  EXPECT_THAT(MergesOf(Made("basis", "m=4,n=3,o=5,k=8")), ElementsAre("Y r g"));
}

TEST(MergeAxesTest, TensorsHaveOneDimensionForBoth) {
  TensorProgram merged =
      *FormOf(std::make_shared<const TensorProgram>(Made("outer_mean", "s=4,n=3,c=8,o=2"))).program;
  EXPECT_THAT(merged.inputs[0]->shape, ElementsAre(4, 24));
  EXPECT_THAT(merged.stages[0].tensor->shape, ElementsAre(24, 24));
  EXPECT_EQ(ToString(merged.stages[0].body), "float32(A[t, ix]) * float32(B[t, jy])");
  EXPECT_THAT(merged.stages[1].tensor->shape, ElementsAre(24, 24));
  EXPECT_EQ(ToString(merged.stages[2].body),
            "float32(M[i * 8 + x, j * 8 + y]) * float32(W[x, y, q])");
}

TEST(MergeAxesTest, TermsOfBothFactorsAreOneAxis) {
  const TensorProgram merged =
      *FormOf(std::make_shared<const TensorProgram>(Made("basis", "m=4,n=3,o=5,k=8"))).program;
  EXPECT_THAT(merged.inputs[2]->shape, ElementsAre(5, 24));
  EXPECT_EQ(merged.stages[1].reduce_axes.size(), 1);
  EXPECT_EQ(ToString(merged.stages[1].body), "float32(H[i, rg]) * float32(W[q, rg])");
  EXPECT_THAT(ToString(merged.stages[0].body), HasSubstr("X[i, rg / 8]"));
}

TEST(MergeAxesTest, OthersStay) {
  EXPECT_THAT(MergesOf(Made("transposed_terms", "m=4,n=3,o=5,k=8")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("basis", "m=4,n=3,o=5,k=64")), IsEmpty());
  for (const char* op : {"also_read_otherwise", "together", "output", "shared"}) {
    EXPECT_THAT(MergesOf(Made(op, "s=4,n=3,c=8")), IsEmpty()) << op;
  }
  EXPECT_THAT(MergesOf(Made("outer_mean", "s=4,n=3,c=64,o=2")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("outer_mean", "s=4,n=3,c=8,o=2", DType::kFloat32)), IsEmpty());
}

TEST(MergeAxesTest, ComputesTheSame) {
  for (const auto& [op, shape] : {std::pair("outer_mean", "s=4,n=3,c=8,o=2"),
                                  {"one_tensor", "s=4,n=3,c=5"},
                                  {"computed_factor", "s=4,n=3,c=8"},
                                  {"basis", "m=4,n=3,o=5,k=8"}}) {
    SCOPED_TRACE(op);
    ExpectFormComputes(std::make_shared<const TensorProgram>(Made(op, shape)));
  }
}

TEST(MergeAxesTest, WhatHasNoTwoAxesIsRefused) {
  const TensorProgram mean = Made("outer_mean", "s=4,n=3,c=8,o=2");
  const auto refusal = [&](const std::string& stage, const std::string& o, const std::string& i) {
    return std::string(WithMergedAxes(mean, stage, o, i).status().message());
  };
  EXPECT_THAT(refusal("Y", "i", "j"), HasSubstr("Y is an output, whose"));
  EXPECT_THAT(refusal("P", "i", "i"), HasSubstr("i and i are not two axes of P"));
  EXPECT_THAT(refusal("P", "i", "t"), HasSubstr("i and t are not two axes of P, or two that"));
  EXPECT_THAT(refusal("Q", "i", "j"), HasSubstr("Q"));
}

}  // namespace
}  // namespace heddle::search_space::merge_axes_test
