// Chains whose terms become whole matrices: what a program becomes, and of which it is refused.
// rolling_values_test.cc has kernels of it.
#include "search_space/schedule/rewrites/axes/pad_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/algorithms.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::pad_terms_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op attention(s, t, d) {
  in Q[s, d], K[t, d], V[t, d], B[s, t]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  S[i: s, j: t] = T[i, j] + B[i, j]
  M[i: s] = max(r: t) S[i, r]
  E[i: s, j: t]: bfloat16 = exp(S[i, j] - M[i])
  L[i: s] = sum(r: t) E[i, r]
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x] / L[i]
}
op two_products(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  out O[i: s, x: d] = sum(r: t) T[i, r] * V[r, x]
}
op causal(s, d) {
  in Q[s, d], K[s, d], V[s, d]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  E[i: s, j: s]: bfloat16 = select(j <= i, T[i, j] + 1, 0)
  P[i: s] = max(r: s) (T[i, r] + T[r, i])
  out O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out N[i: s] = P[i]
}
op own_rows(s, d) {
  in X[s, d]
  H[i: s, x: d]: bfloat16 = 2 * X[i, x]
  K[i: s, x: d]: bfloat16 = X[i, x] + 1
  T[i: s, j: s] = sum(x: d) K[i, x] * K[j, x]
  E[i: s, j: s]: bfloat16 = T[i, j] + 1
  out O[i: s, x: d] = sum(r: s) E[i, r] * H[r, x]
}
op two_sums(s, t, d) {
  in Q[s, d], K[t, d], V[t, d], W[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  out O[i: s, x: d] = sum(r: t) T[i, r] * V[r, x]
  out P[i: s, x: d] = sum(r: t) max(T[i, r], 0) * W[r, x]
}
op rectified(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  out O[i: s, x: d] = sum(r: t) max(T[i, r], 0) * V[r, x] / d
  out N[i: s] = sum(r: t) abs(T[i, r] - 1)
}
op weights_are_a_result(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  out E[i: s, j: t] = exp(T[i, j])
  out O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
}
op one_product(s, t, d) {
  in E[s, t], V[t, d]
  F[i: s, j: t] = exp(E[i, j])
  out O[i: s, x: d] = sum(r: t) F[i, r] * V[r, x]
}
op gathered(v, n, c, d) {
  in X[v, c], I[n, 2]: index(v + 1), G[n, d]
  out O[p: 2, i: c, x: d] = sum(r: n) select(I[r, p] < v, X[I[r, p], i], 0) * G[r, x]
}
op convolution(n, c, o, w) {
  in X[n, c, w], W[o, c, 3]
  P[z: n, r: c, x: w + 2] = select(x >= 1 && x < w + 1, X[z, r, x - 1], 0)
  out O[z: n, q: o, x: w] = sum(r: c, e: 3) P[z, r, x + e] * W[q, r, e]
}
op two_convolutions(n, c, o, w) {
  in X[n, c, w + 2], W[o, c, 3], V[o, c, 3]
  out S[z: n, q: o, x: w] = sum(r: c, e: 3) X[z, r, x + e] * W[q, r, e]
  out T[z: n, q: o, x: w] = sum(r: c, e: 3) X[z, r, x + 2 - e] * V[q, r, e]
}
op convolution_of_output(n, c, o, w) {
  in X[n, c, w], W[o, c, 3]
  out P[z: n, r: c, x: w + 2] = select(x >= 1 && x < w + 1, X[z, r, x - 1], 0)
  out O[z: n, q: o, x: w] = sum(r: c, e: 3) P[z, r, x + e] * W[q, r, e]
}
op gathered_by_output(v, n, m, d) {
  in A[m, n], I[n]: index(v), E[v, d]
  out W[i: m, r: n] = max(A[i, r], 0)
  T[i: m, r: n]: bfloat16 = W[i, r] + 1
  out O[i: m, x: d] = sum(r: n) T[i, r] * E[I[r], x]
}
op gathered_by_reduced(v, n, m, d) {
  in A[m, n], I[n]: index(v), E[v, d]
  out M[r: n] = max(i: m) A[i, r]
  T[i: m, r: n]: bfloat16 = A[i, r] - M[r]
  out O[i: m, x: d] = sum(r: n) T[i, r] * E[I[r], x]
}
)";

TensorProgram Made(const std::string& op, const std::string& shape) {
  return *InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

// "T[i4 j16|r8] = ..."
std::vector<std::string> StagesOf(const TensorProgram& program) {
  std::vector<std::string> stages;
  for (const Stage& s : program.stages) {
    std::string text = absl::StrCat(s.name(), "[");
    for (const Var& v : s.axes) absl::StrAppend(&text, v->name, v->extent, " ");
    absl::StrAppend(&text, "|");
    for (const Var& v : s.reduce_axes) absl::StrAppend(&text, v->name, v->extent);
    EXPECT_EQ(s.tensor->shape.size(), s.axes.size());
    for (size_t a = 0; a < s.axes.size(); ++a) EXPECT_EQ(s.tensor->shape[a], s.axes[a]->extent);
    stages.push_back(absl::StrCat(text, "] = ", ToString(s.body)));
  }
  return stages;
}

TEST(PadTermsTest, TermsBehindTheEndChangeNothing) {
  const auto padded = WithPaddedTerms(Made("attention", "s=4,t=13,d=8"), "O", 16);
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT(StagesOf(**padded),
              ElementsAre("T[i4 j16 |r8] = float32(Q[i, r]) * float32(select(j < 13, K[j, r], 0))",
                          "S[i4 j16 |] = select(j < 13, T[i, j] + float32(B[i, j]), 0)",
                          "M[i4 |r16] = select(r < 13, S[i, r], -inf)",
                          "E[i4 j16 |] = select(j < 13, exp(S[i, j] - M[i]), 0)",
                          "L[i4 |r16] = float32(E[i, r])",
                          "O[i4 x8 |r16] = float32(E[i, r]) * float32(select(r < 13, V[r, x], 0))",
                          "Y[i4 x8 |] = O[i, x] / L[i]"));
  EXPECT_EQ((*padded)->inputs[3]->shape[1], 13);
  const auto rectified = WithPaddedTerms(Made("rectified", "s=4,t=13,d=8"), "O", 16);
  ASSERT_TRUE(rectified.ok()) << rectified.status();
  EXPECT_THAT(StagesOf(**rectified),
              ElementsAre(HasSubstr("T[i4 j16 |r8] = "),
                          "O[i4 x8 |r16] = select(r < 13, max(T[i, r], 0), 0) * "
                          "float32(select(r < 13, V[r, x], 0)) / 8",
                          "N[i4 |r16] = select(r < 13, abs(T[i, r] - 1), 0)"));
  // A product of zeros is zero by itself.
  const auto two = WithPaddedTerms(Made("two_products", "s=4,t=13,d=8"), "O", 16);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(StagesOf(**two).back(),
              HasSubstr("O[i4 x8 |r16] = T[i, r] * float32(select(r < 13, V[r, x], 0))"));
}

// Rows that are read as terms are longer, too; outputs are not, nor what is read along several
// axes.
TEST(PadTermsTest, AxesThatStandForTheTermsAreLonger) {
  const auto padded = WithPaddedTerms(Made("causal", "s=13,d=8"), "O", 16);
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT(StagesOf(**padded),
              ElementsAre(HasSubstr("T[i13 j16 |r8] = float32(Q[i, r]) * "),
                          "E[i13 j16 |] = select(j < 13 && j < i + 1, T[i, j] + 1, 0)",
                          "P[i13 |r13] = T[i, r] + T[r, i]", HasSubstr("O[i13 x8 |r16] = "),
                          HasSubstr("N[i13 |] = P[i]")));
  const auto own = WithPaddedTerms(Made("own_rows", "s=13,d=8"), "O", 16);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_THAT(StagesOf(**own),
              ElementsAre("H[i16 x8 |] = select(i < 13, 2 * float32(X[i, x]), 0)",
                          HasSubstr("K[i13 x8 |] = "),
                          "T[i13 j16 |x8] = float32(K[i, x]) * float32(select(j < 13, K[j, x], 0))",
                          "E[i13 j16 |] = select(j < 13, T[i, j] + 1, 0)",
                          "O[i13 x8 |r16] = float32(E[i, r]) * float32(H[r, x])"));
}

// What an index says behind the end is not asked; the other factor is longer by zeros.
TEST(PadTermsTest, WhatIsGatheredIsZeroBehindTheEnd) {
  const TensorProgram program = Made("gathered", "v=9,n=37,c=4,d=3");
  const auto padded = WithPaddedTerms(program, "O", 16);
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT(StagesOf(**padded),
              ElementsAre(AllOf(HasSubstr("O[p2 i4 x3 |r48] = select(r < 37, select("),
                                HasSubstr("* float32(select(r < 37, G[r, x], 0))"))));
  TensorValues expected = IntegerInputs(program), got = expected;
  EvaluateAll(program, expected);
  EvaluateAll(**padded, got);
  EXPECT_EQ(got.at("O"), expected.at("O"));
  // Parts of them have any length then, so that whole matrices are not the end of it.
  const auto worth = [](int64_t n) {
    const auto terms =
        GatheredTermsWorthPadding(Made("gathered", absl::StrCat("v=9,c=4,d=3,n=", n)));
    return terms.empty() ? 0 : terms[0].multiple;
  };
  EXPECT_EQ(worth(1000), 16);
  EXPECT_EQ(worth(1008), 32);
  EXPECT_EQ(worth(17), 0);
  EXPECT_EQ(worth(15), 0);
  EXPECT_EQ(worth(1024), 0);
  // Outputs keep their length, also where the sum reads them through others.
  for (const char* op : {"gathered_by_output", "gathered_by_reduced"}) {
    const TensorProgram read = Made(op, "v=9,n=100,m=4,d=3");
    EXPECT_TRUE(GatheredTermsWorthPadding(read).empty()) << op;
    EXPECT_THAT(std::string(WithPaddedTerms(read, "O", 16).status().message()),
                HasSubstr("is no sum over products of two tensors' elements"))
        << op;
  }
}

// Copies of the inputs are longer, each with zeros.
TEST(PadTermsTest, ChannelsOfAConvolutionAreZeroBehindTheEnd) {
  const TensorProgram program = Made("convolution", "n=2,c=19,o=3,w=6");
  const auto padded = WithPaddedTerms(program, "O", 16);
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT(StagesOf(**padded),
              ElementsAre(HasSubstr("W.padded[d03 d132 d23 |] = select(d1 < 19, W[d0, d1, d2], 0)"),
                          HasSubstr("P[z2 r32 x8 |] = select(r < 19 && "),
                          HasSubstr("O[z2 q3 x6 |r32e3] = float32(P[z, r, x + e]) * "
                                    "float32(W.padded[q, r, e])")));
  TensorValues expected = IntegerInputs(program), got = expected;
  EvaluateAll(program, expected);
  EvaluateAll(**padded, got);
  EXPECT_EQ(got.at("O"), expected.at("O"));
  const auto worth = [](const char* op, int64_t c, DType type) {
    const auto terms = ChannelsWorthPadding(
        *InstantiatedFrom(kOperators, op, absl::StrCat("n=1,o=3,w=6,c=", c), type));
    return terms.empty() ? 0 : terms[0].multiple;
  };
  EXPECT_EQ(worth("convolution", 67, DType::kFloat16), 16);
  EXPECT_EQ(worth("convolution", 64, DType::kFloat16), 0);
  EXPECT_EQ(worth("convolution", 3, DType::kFloat16), 0);
  EXPECT_EQ(worth("convolution", 67, DType::kFloat32), 0);
  EXPECT_EQ(worth("convolution_of_output", 67, DType::kFloat16), 0);
  const auto larger =
      InstantiatedFrom(kOperators, "convolution", "n=2,c=37,o=24,w=45", DType::kFloat16);
  ExpectPointsCompute(larger, *FindTarget("h100"), " pad_channels+pack/");
  ExpectPointsCompute(larger, *FindTarget("a100"), " pad_channels");
  // Each of several has copies of its own, also of what they have in common.
  const auto both =
      InstantiatedFrom(kOperators, "two_convolutions", "n=2,c=20,o=8,w=16", DType::kFloat16);
  ExpectPointsCompute(both, *FindTarget("h100"), " pad_channels");
}

// Blocks share its terms out.
TEST(PadTermsTest, MatricesThatAreGatheredAreMultipliedInParts) {
  const auto program =
      InstantiatedFrom(kOperators, "gathered", "v=300,n=1000,c=24,d=32", DType::kBFloat16);
  for (const char* target : {"h100", "a100"}) {
    const auto space = *SearchSpace::Create(program, *FindTarget(target));
    TensorValues expected = IntegerInputs(*program);
    EvaluateAll(*program, expected);
    size_t in_parts = 0;
    ForDrawnPoints(space, 12, BeginsWith("pad_gathered/"), IntegerInputs(*program),
                   [&](const Program& lowered, const TensorValues& got) {
                     in_parts += lowered.kernels.size() > 1 ? 1 : 0;
                     EXPECT_EQ(got.at("O"), expected.at("O"));
                   });
    EXPECT_GT(in_parts, 2) << target;
  }
}

// All outputs, which have as many elements as before.
TEST(PadTermsTest, ComputesWhatItDid) {
  for (const char* op :
       {"attention", "two_products", "causal", "own_rows", "two_sums", "rectified"}) {
    SCOPED_TRACE(op);
    const bool is_square = std::string(op) == "causal" || std::string(op) == "own_rows";
    const TensorProgram program = Made(op, is_square ? "s=13,d=8" : "s=4,t=13,d=8");
    const auto padded = WithPaddedTerms(program, "O", 16);
    ASSERT_TRUE(padded.ok()) << padded.status();
    TensorValues expected = IntegerInputs(program), got = expected;
    EvaluateAll(program, expected);
    EvaluateAll(**padded, got);
    for (const Stage& stage : program.stages) {
      if (!stage.is_output) continue;
      EXPECT_EQ(got.at(stage.name()), expected.at(stage.name())) << stage.name();
    }
  }
}

TEST(PadTermsTest, OthersAreRefused) {
  const auto refusal = [](const std::string& op, const std::string& stage, int64_t multiple) {
    const TensorProgram program = Made(op, "s=4,t=32,d=8");
    return std::string(WithPaddedTerms(program, stage, multiple).status().message());
  };
  EXPECT_THAT(refusal("attention", "O", 16), HasSubstr("the 32 terms of O are multiples of 16"));
  EXPECT_THAT(refusal("attention", "O", 0), HasSubstr("the multiple must be 1 to 256, not 0"));
  EXPECT_THAT(refusal("attention", "O", int64_t{1} << 58), HasSubstr("must be 1 to 256, not"));
  EXPECT_THAT(refusal("attention", "Z", 16), HasSubstr("Z is no stage of attention"));
  const char* const kNone = "is no sum over products of two tensors' elements, of which";
  EXPECT_THAT(refusal("attention", "T", 24), HasSubstr(kNone));
  EXPECT_THAT(refusal("attention", "L", 24), HasSubstr(kNone));
  EXPECT_THAT(refusal("one_product", "O", 24), HasSubstr(kNone));
  EXPECT_THAT(refusal("weights_are_a_result", "O", 24), HasSubstr(kNone));
}

// One step pads what several sums read, and what is left is split.
TEST(PadTermsTest, StepsApplyOneAfterTheOther) {
  const auto program = std::make_shared<const TensorProgram>(Made("two_sums", "s=16,t=77,d=16"));
  for (const Algorithm& algorithm : AlgorithmsOf(program)) {
    Schedule schedule(program);
    EXPECT_TRUE(Apply(algorithm.steps, schedule).ok()) << algorithm.name;
    if (algorithm.name != "pad_terms") continue;
    EXPECT_EQ(ToString(algorithm.steps), "pad_terms(O, 16)\nsplit_operand(O)\nsplit_operand(P)\n");
    return;
  }
  FAIL() << "no algorithm pads";
}

TEST(PadTermsTest, WholeMatricesAreWorthIt) {
  const auto worth = [](int64_t t) {
    const auto terms = TermsWorthPadding(Made("attention", absl::StrCat("s=4,d=8,t=", t)));
    return terms.empty() ? 0 : terms[0].multiple;
  };
  EXPECT_EQ(worth(77), 16);   // 80
  EXPECT_EQ(worth(197), 32);  // 224
  EXPECT_EQ(worth(500), 64);  // 512
  EXPECT_EQ(worth(80), 0);
  EXPECT_EQ(worth(15), 0);
}

}  // namespace
}  // namespace heddle::search_space::pad_terms_test
