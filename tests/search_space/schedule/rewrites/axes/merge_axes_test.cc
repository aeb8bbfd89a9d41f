// Axes that lie together in a factor, as one: which those are, what a program becomes, and what is
// refused.
#include "search_space/schedule/rewrites/axes/merge_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/form.h"
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
op scaled_images(b, s, n, k) {
  in X[b, s, k], W[n, k], K[b], P[s, n]
  T[z: b, i: s, j: n] = sum(r: k) X[z, i, r] * W[j, r]
  out Y[z: b, i: s, j: n] = K[z] * T[z, i, j] + P[i, j]
}
op own_images(b, s, n, k) {
  in X[b, s, k], W[b, n, k]
  out Y[z: b, i: s, j: n] = sum(r: k) X[z, i, r] * W[z, j, r]
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
op image_attention(h, n, c) {
  in Q[h, n, n, c], K[h, n, n, c], V[h, n, n, c], R[2 * n - 1, c], B[h, n, n, n, n]
  T[p: h, y: n, x: n, u: n, v: n] = sum(r: c) Q[p, y, x, r] * K[p, u, v, r]
  A[p: h, y: n, x: n, u: n] = sum(r: c) Q[p, y, x, r] * R[y - u + n - 1, r]
  L[p: h, y: n, x: n, u: n, v: n] = T[p, y, x, u, v] + A[p, y, x, u] + B[p, y, x, u, v]
  M[p: h, y: n, x: n] = max(u: n, v: n) L[p, y, x, u, v]
  E[p: h, y: n, x: n, u: n, v: n]: bfloat16 = max(L[p, y, x, u, v] - M[p, y, x] + 4, 0)
  S[p: h, y: n, x: n] = sum(u: n, v: n) E[p, y, x, u, v]
  O[p: h, y: n, x: n, q: c] = sum(u: n, v: n) E[p, y, x, u, v] * V[p, u, v, q]
  out Y[p: h, y: n, x: n, q: c] = O[p, y, x, q] + S[p, y, x]
}
op rectified(h, n, c) {
  in Q[h, n, n, c], K[h, n, n, c], V[h, n, n, c]
  T[p: h, y: n, x: n, u: n, v: n] = sum(r: c) Q[p, y, x, r] * K[p, u, v, r]
  E[p: h, y: n, x: n, u: n, v: n]: bfloat16 = max(T[p, y, x, u, v], 0)
  O[p: h, y: n, x: n, q: c] = sum(u: n, v: n) E[p, y, x, u, v] * V[p, u, v, q]
  out Y[p: h, y: n, x: n, q: c] = O[p, y, x, q]
}
op video_attention(t, n, c) {
  in X[t, n, n, c]
  T[i: t, y: n, x: n, j: t, u: n, v: n] = sum(r: c) X[i, y, x, r] * X[j, u, v, r]
  M[i: t, y: n, x: n] = max(j: t, u: n, v: n) T[i, y, x, j, u, v]
  E[i: t, y: n, x: n, j: t, u: n, v: n]: bfloat16 = max(T[i, y, x, j, u, v] - M[i, y, x] + 4, 0)
  out Y[i: t, y: n, x: n, q: c] = sum(j: t, u: n, v: n) E[i, y, x, j, u, v] * X[j, u, v, q]
}
op projected(n, k, c) {
  in X[n, n, c], W[k, c], K[n, n, k]
  Q[y: n, x: n, q: k]: bfloat16 = sum(r: c) X[y, x, r] * W[q, r]
  T[y: n, x: n, u: n, v: n] = sum(q: k) Q[y, x, q] * K[u, v, q]
  out Y[y: n, x: n] = max(u: n, v: n) select(v <= x && u <= y, T[y, x, u, v], -9)
}
op normalised(n, c, k) {
  in X[c, n, n], W[k, c]
  T[q: k, y: n, x: n] = sum(r: c) X[r, y, x] * W[q, r]
  S[q: k] = sum(y: n, x: n) T[q, y, x]
  out Y[q: k, y: n, x: n] = T[q, y, x] - S[q]
}
op long_rows(n, m, c) {
  in Q[n, m, c], K[m, c]
  T[i: n, x: m, j: m] = sum(r: c) Q[i, x, r] * K[j, r]
  out Y[i: n, x: m] = max(j: m) T[i, x, j]
}
op neighbourhood(n, k, c) {
  in Q[n, n, c], K[n + k - 1, n + k - 1, c]
  T[y: n, x: n, u: k, v: k] = sum(r: c) Q[y, x, r] * K[y + u, x + v, r]
  out Y[y: n, x: n] = max(u: k, v: k) T[y, x, u, v]
}
op blurred(n, c, k) {
  in X[c, n + 2, n + 2], W[k, c]
  T[q: k, y: n + 2, x: n + 2] = sum(r: c) X[r, y, x] * W[q, r]
  out Y[q: k, y: n, x: n] = sum(r: 3, s: 3) T[q, y + r, x + s]
}
op apart_in_output(n, k, c) {
  in Q[n, n, c], K[k, c]
  T[y: n, x: n, j: k] = sum(r: c) Q[y, x, r] * K[j, r]
  S[y: n, x: n] = sum(j: k) T[y, x, j]
  out Y[x: n, j: k, y: n] = T[y, x, j] + S[y, x]
}
op norm_linear(b, s, c, o) {
  in X[b, s, c], W[o, c]
  S[z: b, i: s] = sum(k: c) X[z, i, k] * X[z, i, k]
  N[z: b, i: s, k: c]: bfloat16 = X[z, i, k] - S[z, i]
  out Y[z: b, i: s, q: o] = sum(k: c) N[z, i, k] * W[q, k]
}
op norm_heads(b, s, c, h) {
  in X[b, s, c], W[h, c, c]
  S[z: b, i: s] = sum(k: c) X[z, i, k] * X[z, i, k]
  N[z: b, i: s, k: c]: bfloat16 = X[z, i, k] - S[z, i]
  K[z: b, i: s, p: h, x: c]: bfloat16 = sum(k: c) N[z, i, k] * W[p, x, k]
  out Y[z: b, p: h, i: s, j: s] = sum(x: c) K[z, i, p, x] * K[z, j, p, x]
}
op beside(n, c) {
  in U[n, n, c], D[n, c], F[n, n, c]
  T[z: n, i: n, j: n] = sum(a: c) D[j, a] * U[z, i, a]
  S[z: n, i: n] = sum(a: c) F[z, i, a]
  out Y[z: n, i: n, j: n] = T[z, i, j] + S[z, i]
}
op of_one_axis(n, c) {
  in Q[n, c], K[n, n, c], V[n, c]
  T[i: n, u: n, v: n] = sum(r: c) Q[i, r] * K[u, v, r]
  M[i: n] = max(u: n, v: n) T[i, u, v]
  out Y[i: n, q: c] = sum(u: n, v: n) (T[i, u, v] - M[i]) * V[u, q]
}
op middle_core(b, o, j, k, r) {
  in T[b, o, r, j, k], B[r, j, j, r], C[r, k, k]
  U[z: b, i: o, p: j, s: r, w: k]: bfloat16 = sum(u: r, v: j) T[z, i, u, v, w] * B[u, v, p, s]
  out Y[z: b, i: o, p: j, q: k] = sum(s: r, w: k) U[z, i, p, s, w] * C[s, w, q]
}
op blurred_rows(n, m, c, k) {
  in X[n, c, m + 2], W[k, c, 3]
  T[z: n, q: k, x: m]: bfloat16 = sum(r: c, e: 3) X[z, r, x + e] * W[q, r, e]
  out Y[z: n, q: k, x: m] = max(T[z, q, x], 0)
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
  for (std::vector<AxesToMerge> axes; !(axes = AxesWorthMerging(program)).empty();) {
    for (const auto& [stage, outer, inner] : axes) {
      merges.push_back(absl::StrCat(stage, " ", outer, " ", inner));
      program = **WithMergedAxes(program, stage, outer, inner);
    }
  }
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

// What is behind a product knows rows, and terms, along one axis.
TEST(MergeAxesTest, NeighboursAreOneAxisWhereverTheyAre) {
  EXPECT_THAT(MergesOf(Made("image_attention", "h=2,n=3,c=4")), ElementsAre("T y x", "T u v"));
  EXPECT_THAT(MergesOf(Made("video_attention", "t=2,n=3,c=4")),
              ElementsAre("T i y", "T j u", "T iy x", "T ju v"));
  EXPECT_THAT(MergesOf(Made("projected", "n=3,k=4,c=5")), ElementsAre("Q y x", "T u v"));
  EXPECT_THAT(MergesOf(Made("normalised", "n=3,c=4,k=5")), ElementsAre("T y x"));
  EXPECT_THAT(MergesOf(Made("normalised", "n=3,c=4,k=5", DType::kFloat32)), ElementsAre("T y x"));
  EXPECT_THAT(MergesOf(Made("normalised", "n=64,c=4,k=5")), ElementsAre("T y x"));
  EXPECT_THAT(MergesOf(Made("long_rows", "n=3,m=5,c=4")), ElementsAre("T i x"));
  EXPECT_THAT(MergesOf(Made("norm_linear", "b=2,s=3,c=4,o=5")), ElementsAre("Y z i"));
}

TEST(MergeAxesTest, ThatHoldsForInputsReductionsAndOutputs) {
  const TensorProgram merged =
      *FormOf(std::make_shared<const TensorProgram>(Made("image_attention", "h=2,n=3,c=4")))
           .program;
  const auto shape_of = [&](const std::string& stage) {
    return std::find_if(merged.stages.begin(), merged.stages.end(),
                        [&](const Stage& s) { return s.name() == stage; })
        ->tensor->shape;
  };
  EXPECT_THAT(merged.inputs[0]->shape, ElementsAre(2, 9, 4));
  EXPECT_THAT(merged.inputs[2]->shape, ElementsAre(2, 9, 4));
  EXPECT_THAT(merged.inputs[4]->shape, ElementsAre(2, 9, 9));
  EXPECT_THAT(shape_of("T"), ElementsAre(2, 9, 9));
  EXPECT_THAT(shape_of("M"), ElementsAre(2, 9));
  EXPECT_THAT(shape_of("Y"), ElementsAre(2, 9, 4));
  // A table is read along one of the two, by a product that keeps them.
  EXPECT_THAT(shape_of("A"), ElementsAre(2, 3, 3, 3));
  EXPECT_EQ(ToString(merged.stages[1].body),
            "float32(Q[p, y * 3 + x, r]) * float32(R[y - u + 2, r])");
  EXPECT_THAT(ToString(merged.stages[2].body),
              HasSubstr("T[p, yx, uv] + A[p, yx / 3, yx % 3, uv / 3]"));
}

// Attention over the pixels of an image, as over words.
TEST(MergeAxesTest, OneKernelMakesProductsOfImages) {
  const auto program = std::make_shared<const TensorProgram>(Made("rectified", "h=2,n=8,c=16"));
  ExpectPointsCompute(program, TargetFor("rolling"), "rolling:");
}

TEST(MergeAxesTest, OthersStay) {
  EXPECT_THAT(MergesOf(Made("long_rows", "n=3,m=256,c=4")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("neighbourhood", "n=4,k=3,c=4")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("blurred", "n=4,c=3,k=2")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("apart_in_output", "n=4,c=3,k=2")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("of_one_axis", "n=4,c=3")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("beside", "n=4,c=3")), IsEmpty());
  EXPECT_THAT(MergesOf(Made("norm_heads", "b=2,s=3,c=4,h=2")), IsEmpty());
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
                                  {"basis", "m=4,n=3,o=5,k=8"},
                                  {"image_attention", "h=2,n=3,c=4"},
                                  {"video_attention", "t=2,n=3,c=4"},
                                  {"projected", "n=3,k=4,c=5"},
                                  {"normalised", "n=3,c=4,k=5"},
                                  {"norm_linear", "b=2,s=3,c=4,o=5"},
                                  {"long_rows", "n=3,m=5,c=4"}}) {
    SCOPED_TRACE(op);
    ExpectFormComputes(std::make_shared<const TensorProgram>(Made(op, shape)));
  }
}

TEST(MergeAxesTest, RowsOfSeveralImagesAreOfOneMatrix) {
  const auto worth = [](const std::string& op, const std::string& shape) {
    std::string all;
    for (const AxesToMerge& m : RowsWorthMerging(Made(op, shape))) {
      absl::StrAppend(&all, m.stage, " ", m.outer, " ", m.inner, ";");
    }
    return all;
  };
  EXPECT_EQ(worth("scaled_images", "b=3,s=5,n=8,k=16"), "T z i;");
  EXPECT_EQ(worth("scaled_images", "b=3,s=64,n=8,k=16"), "");  // whole tiles
  EXPECT_EQ(worth("scaled_images", "b=1,s=5,n=8,k=16"), "");
  EXPECT_EQ(worth("own_images", "b=3,s=5,n=8,k=16"), "");
  const TensorProgram program = Made("scaled_images", "b=3,s=5,n=8,k=16");
  const auto merged = WithMergedAxes(program, "T", "z", "i");
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ((*merged)->stages[0].axes[0]->extent, 15);
  TensorValues inputs = IntegerInputs(program), values = inputs;
  EvaluateAll(program, inputs);
  EvaluateAll(**merged, values);
  EXPECT_EQ(values.at("Y"), inputs.at("Y"));
}

// The last axis of the result would be a batch's, whose elements lie across what threads store.
TEST(MergeAxesTest, RowsThatLieApartAreOfOneMatrix) {
  const auto worth = [](const std::string& op, const std::string& shape, DType type) {
    std::string all;
    for (const AxesToMerge& m : RowsApartWorthMerging(Made(op, shape, type))) {
      absl::StrAppend(&all, m.stage, " ", m.outer, " ", m.inner, ";");
    }
    return all;
  };
  const std::string shape = "b=70,o=2,j=3,k=8,r=4";
  EXPECT_EQ(worth("middle_core", shape, DType::kBFloat16), "U z w;");
  EXPECT_EQ(worth("middle_core", shape, DType::kFloat32), "");
  EXPECT_EQ(worth("middle_core", "b=70,o=2,j=3,k=64,r=4", DType::kBFloat16), "");  // whole tiles
  EXPECT_EQ(worth("middle_core", "b=9,o=2,j=3,k=8,r=4", DType::kBFloat16), "");    // few rows
  EXPECT_EQ(worth("blurred_rows", "n=70,m=8,c=4,k=5", DType::kBFloat16), "");      // windows
  const TensorProgram program = Made("middle_core", shape);
  const auto merged = WithMergedAxes(program, "U", "z", "w");
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ((*merged)->stages[0].tensor->shape, (std::vector<int64_t>{560, 2, 3, 4}));
  TensorValues inputs = IntegerInputs(program), values = inputs;
  EvaluateAll(program, inputs);
  EvaluateAll(**merged, values);
  EXPECT_EQ(values.at("Y"), inputs.at("Y"));
}

// The runs of neighbours that a remainder numbers are fetched at once, and stored in lines.
TEST(MergeAxesTest, RowsThatLieApartAreFetchedInRuns) {
  const auto program =
      InstantiatedFrom(kOperators, "middle_core", "b=34,o=2,j=4,k=16,r=4", DType::kBFloat16);
  const SearchSpace space = *SearchSpace::Create(program, *FindTarget("h100"));
  const std::vector<Point> points = DrawnPoints(space, 3, BeginsWith("merge/warpgroup+warpgroup:"));
  ASSERT_FALSE(points.empty());
  for (const Point& point : points) {
    const auto lowered = space.Lower(point);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_THAT(ToString(*lowered), testing::ContainsRegex("U.acc.operand0[^=]*:8 = [^=]*T\\["));
    ExpectComputes(*program, *lowered, 1);
  }
}

TEST(MergeAxesTest, WhatHasNoTwoAxesIsRefused) {
  const TensorProgram mean = Made("outer_mean", "s=4,n=3,c=8,o=2");
  const auto refusal = [&](const std::string& stage, const std::string& o, const std::string& i) {
    return std::string(WithMergedAxes(mean, stage, o, i).status().message());
  };
  EXPECT_THAT(refusal("Y", "i", "q"), HasSubstr("Y is an output, whose"));
  EXPECT_THAT(refusal("Y", "j", "i"), HasSubstr("Y is an output, whose"));
  EXPECT_THAT(refusal("P", "i", "i"), HasSubstr("i and i are not two axes of P"));
  EXPECT_THAT(refusal("P", "i", "t"), HasSubstr("i and t are not two axes of P, or two that"));
  EXPECT_THAT(refusal("Q", "i", "j"), HasSubstr("Q"));
}

}  // namespace
}  // namespace heddle::search_space::merge_axes_test
