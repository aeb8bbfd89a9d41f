// Products of float32 stages as products of their parts: what a program becomes, how near parts are
// to what they are of, which sketches there are, and that schedules of that compute the definition.
#include "search_space/schedule/rewrites/reductions/split_operand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/sketch/programs/least_flops.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::split_operand_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op packed(s, h, d) {
  in Q[s, 2 * h * d]
  S[p: h, i: s, j: s] = sum(r: d) Q[i, p * d + r] * Q[j, h * d + p * d + r]
  out A[p: h, i: s, x: d] = sum(j: s) bfloat16(S[p, i, j]) * Q[j, p * d + x]
}
op mlp(m, d, h) {
  in X[m, d], W[d, h], V[h, d], B[h]
  A[i: m, j: h] = sum(r: d) X[i, r] * W[r, j]
  G[i: m, j: h] = max(A[i, j] + B[j], 0)
  out Y[i: m, j: d]: float32 = sum(r: h) G[i, r] * V[r, j]
}
op mlp_bf16(m, d, h) {
  in X[m, d], W[d, h], V[h, d]
  A[i: m, j: h] = sum(r: d) X[i, r] * W[r, j]
  G[i: m, j: h]: bfloat16 = max(A[i, j], 0)
  out Y[i: m, j: d] = sum(r: h) G[i, r] * V[r, j]
}
op gated(m, d, h) {
  in X[m, d], W[d, h], U[d, h], V[h, d]
  A[i: m, j: h] = sum(r: d) X[i, r] * W[r, j]
  B[i: m, j: h] = sum(r: d) X[i, r] * U[r, j]
  G[i: m, j: h] = max(A[i, j], 0) + B[i, j]
  out Y[i: m, j: d]: float32 = sum(r: h) G[i, r] * V[r, j]
}
op three_products(b, n) {
  in A[b, n, n], B[b, n, n], C[b, n, n]
  T[z: b, i: n, j: n] = sum(r: n) A[z, i, r] * B[z, r, j]
  out Y[z: b, i: n, j: n]: float32 = sum(r: n) T[z, i, r] * C[z, r, j]
}
op shared_factor(m, n, k) {
  in X[m, k], W[k, n], V[n, k], U[n, m]
  A[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  out Y[i: m, j: k]: float32 = sum(r: n) A[i, r] * V[r, j]
  out Z[i: n, j: n]: float32 = sum(r: m) U[i, r] * A[r, j]
}
op scaled(m, n, k) {
  in X[m, k], W[k, n], S[m]: float32
  N[i: m, r: k] = 2 * X[i, r] * S[i]
  out Y[i: m, j: n]: float32 = sum(r: k) select(r <= i, N[i, r], 0) * W[r, j] * S[i]
}
op both(m, n, k) {
  in X[m, k], W[k, n]
  P[i: m, r: k] = 2 * X[i, r] + 1
  Q[r: k, j: n] = 3 * W[r, j]
  out Y[i: m, j: n]: float32 = sum(r: k) P[i, r] * Q[r, j]
}
op rectified(m, d, h) {
  in X[m, d], W[d, h], V[h, d]
  A[i: m, j: h] = sum(r: d) X[i, r] * W[r, j]
  out Y[i: m, j: d]: float32 = sum(r: h) max(A[i, r], 0) * V[r, j]
}
op normed(m, n, k) {
  in X[m, k], G[k], S[m]: float32, W[n, k], V[n, k]
  out Y[i: m, j: n]: float32 = sum(r: k) X[i, r] * S[i] * G[r] * W[j, r]
  out Z[i: m, j: n]: float32 = sum(r: k) X[i, r] * G[r] * V[j, r]
}
op padded(m, n, k) {
  in X[m, k], W[n, k]
  out Y[i: m, j: n]: float32 = sum(r: k + 2) select(r >= 1 && r < k + 1, X[i, r - 1], 0)
      * select(r >= 1 && r < k + 1, W[j, r - 1] + 1, 0)
}
op padded_scale(m, n, k) {
  in X[m, k], W[n, k], G[k]
  out Y[i: m, j: n]: float32 = sum(r: k + 2) select(r >= 1 && r < k + 1, X[i, r - 1], 0)
      * select(r >= 1 && r < k + 1, W[j, r - 1] + G[r - 1], 0)
}
op dots(m, n, k) {
  in X[m, k], G[k], H[n]
  out Z[i: n] = H[i]
  out Y[i: m]: float32 = sum(r: k) X[i, r] * X[i, r] * G[r]
}
op input(m, n, k) {
  in X[m, k]: float32, W[k, n]
  out Y[i: m, j: n]: float32 = sum(r: k) X[i, r] * W[r, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kBFloat16) {
  const auto found = FindOperator(*ParseOperators(kOperators), op);
  return std::make_shared<const TensorProgram>(*found->Instantiate(*ParseShape(shape), type));
}

// "Y[ij|r] = ..."
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

TEST(SplitOperandTest, SumsOverParts) {
  const auto split = WithSplitOperand(*Made("three_products", "b=2,n=16"), "Y");
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(StagesOf(**split),
              ElementsAre("T[zij|r] = float32(A[z, i, r]) * float32(B[z, r, j])",
                          "T.parts[pzij|] = select(p == 0, T[z, i, j], T[z, i, j] - "
                          "float32(bfloat16(T[z, i, j])))",
                          "Y[zij|pr] = float32(T.parts[p, z, i, r]) * float32(C[z, r, j])"));
  EXPECT_EQ((*split)->stages[1].tensor->dtype, DType::kBFloat16);
  const auto scaled = WithSplitOperand(*Made("scaled", "m=16,n=16,k=16"), "Y");
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_THAT(
      StagesOf(**scaled).back(),
      HasSubstr("select(r < i + 1, float32(N.parts[p, i, r]), 0) * float32(W[r, j]) * S[i]"));
}

TEST(SplitOperandTest, FactorsAreComputed) {
  // Of the elements of one tensor: its dimensions.
  const auto rectified = WithSplitOperand(*Made("rectified", "m=16,d=16,h=16"), "Y");
  ASSERT_TRUE(rectified.ok()) << rectified.status();
  EXPECT_THAT(StagesOf(**rectified),
              ElementsAre("A[ij|r] = float32(X[i, r]) * float32(W[r, j])",
                          "Y.factor.parts[pij|] = select(p == 0, max(A[i, j], 0), max(A[i, j], 0) "
                          "- float32(bfloat16(max(A[i, j], 0))))",
                          "Y[ij|pr] = float32(Y.factor.parts[p, i, r]) * float32(V[r, j])"));
  const auto input = WithSplitOperand(*Made("input", "m=16,n=16,k=16"), "Y");
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_THAT(StagesOf(**input).back(), HasSubstr("float32(Y.factor.parts[p, i, r])"));
  // Of several: the axes that they mention. What is the same in all terms stays where it is.
  auto normed = WithSplitOperand(*Made("normed", "m=16,n=16,k=16"), "Y");
  ASSERT_TRUE(normed.ok()) << normed.status();
  normed = WithSplitOperand(**normed, "Z");
  ASSERT_TRUE(normed.ok()) << normed.status();
  EXPECT_THAT(
      StagesOf(**normed),
      ElementsAre(
          HasSubstr("Y.factor.parts[pir|] = select(p == 0, float32(X[i, r]) * float32(G[r]), "),
          "Y[ij|pr] = float32(Y.factor.parts[p, i, r]) * S[i] * float32(W[j, r])",
          "Z[ij|pr] = float32(Y.factor.parts[p, i, r]) * float32(V[j, r])"));
  // Of elements that a condition protects: under it.
  const auto padded = WithSplitOperand(*Made("padded", "m=16,n=16,k=16"), "Y");
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT(StagesOf(**padded).front(), HasSubstr("select(p == 0, float32(W[d0, d1]) + 1, "));
  EXPECT_THAT(StagesOf(**padded).back(),
              HasSubstr("select(1 <= r && r < 17, float32(Y.factor.parts[p, j, r - 1]), 0)"));
  const auto window = WithSplitOperand(*Made("padded_scale", "m=16,n=16,k=16"), "Y");
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_THAT(StagesOf(**window).front(), HasSubstr("[pjr|] = select(p == 0, select(1 <= r && "));
}

// A factor may be no function of one load: heads that lie in one tensor are read at several places.
TEST(SplitOperandTest, HeadsInOneTensorHaveASpace) {
  for (const char* target : {"h100", "t4"}) {
    const auto space =
        SearchSpace::Create(Made("packed", "s=33,h=2,d=16", DType::kFloat32), *FindTarget(target));
    ASSERT_TRUE(space.ok()) << space.status();
    EXPECT_TRUE(space->Lower(space->Default()).ok());
  }
}

TEST(SplitOperandTest, SumsShareParts) {
  auto program = WithSplitOperand(*Made("shared_factor", "m=16,n=16,k=16"), "Y");
  ASSERT_TRUE(program.ok()) << program.status();
  program = WithSplitOperand(**program, "Z");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->stages.size(), 4);
  EXPECT_THAT(StagesOf(**program).back(), HasSubstr("U[i, r]) * float32(A.parts[p, r, j])"));
  // Whichever is split first, parts stand before both.
  auto other = WithSplitOperand(*Made("shared_factor", "m=16,n=16,k=16"), "Z");
  ASSERT_TRUE(other.ok()) << other.status();
  other = WithSplitOperand(**other, "Y");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(StagesOf(**other), StagesOf(**program));
}

TEST(SplitOperandTest, OtherFactorsAreRefused) {
  const auto refusal = [](const std::string& op, const std::string& stage, DType type) {
    const std::string shape = op == "mlp_bf16" ? "m=16,d=16,h=16" : "m=16,n=16,k=16";
    return std::string(WithSplitOperand(*Made(op, shape, type), stage).status().message());
  };
  const char* const kNone = "no sum of products of a float32 factor and of numbers";
  // Of 16 bits already, both of float32, no product of matrices.
  EXPECT_THAT(refusal("mlp_bf16", "Y", DType::kBFloat16), HasSubstr(kNone));
  EXPECT_THAT(refusal("both", "Y", DType::kBFloat16), HasSubstr(kNone));
  EXPECT_THAT(refusal("dots", "Y", DType::kBFloat16), HasSubstr(kNone));
  // The parts of a float32 are no numbers of float16, and units for it take no bfloat16.
  EXPECT_THAT(refusal("shared_factor", "Y", DType::kFloat16), HasSubstr(kNone));
  EXPECT_THAT(refusal("shared_factor", "Y", DType::kFloat32), HasSubstr(kNone));
  EXPECT_THAT(refusal("shared_factor", "A", DType::kBFloat16), HasSubstr(kNone));
  EXPECT_THAT(refusal("shared_factor", "B", DType::kBFloat16), HasSubstr("B is no stage"));
}

TEST(SplitOperandTest, PartsAreAsNearAsPromised) {
  std::mt19937_64 rng(3);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const auto exponent = static_cast<int>(rng() % 200) - 100;
    const double value = static_cast<float>(
        std::ldexp(1 + std::ldexp(static_cast<double>(rng() >> 40), -24), exponent));
    const double first = RoundTo(kPartType, value);
    const double second = RoundTo(kPartType, value - first);
    worst = std::max(worst, std::abs(first + second - value) / value);
  }
  EXPECT_LE(worst, kPartsLoss);
  EXPECT_GT(worst, kPartsLoss / 2) << "the bound says no more than it must";
  const auto is_exact = [](int64_t whole) {
    const auto value = static_cast<double>(whole);
    const double first = RoundTo(kPartType, value);
    return first + RoundTo(kPartType, value - first) == value;
  };
  const auto most = static_cast<int64_t>(kMostExactInParts);
  for (int64_t value = 0; value <= most; ++value) {
    ASSERT_TRUE(is_exact(value)) << value;
  }
  bool all = true;
  for (int64_t value = most; value <= 2 * most; ++value) {
    all = all && is_exact(value);
  }
  EXPECT_FALSE(all);
}

std::set<std::string> SplitSketches(const std::string& op, const std::string& shape, DType type,
                                    const char* target) {
  const auto space = SearchSpace::Create(Made(op, shape, type), *FindTarget(target));
  std::set<std::string> names;
  Rng rng(1);
  for (int draw = 0; draw < 300; ++draw) {
    const auto point = space->Sample(rng);
    if (!point) continue;
    const std::string text = space->Print(*point);
    if (absl::StartsWith(text, "split_operand/")) names.insert(text.substr(0, text.find(':')));
  }
  return names;
}

TEST(SplitOperandTest, SketchesAreForMatrixUnits) {
  const std::string shape = "m=256,d=256,h=256";
  EXPECT_THAT(
      SplitSketches("mlp", shape, DType::kBFloat16, "h100"),
      testing::UnorderedElementsAre("split_operand/rolling", "split_operand/rolling_warpgroup",
                                    "split_operand/warpgroup+warpgroup",
                                    "split_operand/matrix+matrix[stored=G.parts]",
                                    "split_operand/matrix+warpgroup[stored=G.parts]",
                                    "split_operand/warpgroup+matrix[stored=G.parts]",
                                    "split_operand/warpgroup+warpgroup[stored=G.parts]"));
  EXPECT_THAT(SplitSketches("mlp", shape, DType::kBFloat16, "a100"),
              testing::UnorderedElementsAre("split_operand/rolling", "split_operand/matrix+matrix",
                                            "split_operand/matrix+matrix[stored=G.parts]"));
  EXPECT_THAT(SplitSketches("mlp", shape, DType::kBFloat16, "v100"), testing::IsEmpty());
  EXPECT_THAT(SplitSketches("mlp", shape, DType::kFloat16, "h100"), testing::IsEmpty());
  EXPECT_THAT(SplitSketches("mlp", shape, DType::kFloat32, "h100"), testing::IsEmpty());
  EXPECT_THAT(SplitSketches("mlp_bf16", shape, DType::kBFloat16, "h100"), testing::IsEmpty());
}

// What one part less would miss: integers that are no numbers of bfloat16.
TEST(SplitOperandTest, PointsComputeTheDefinition) {
  for (const auto& [op, shape] : {std::pair("mlp", "m=40,d=48,h=32"),
                                  {"mlp", "m=37,d=24,h=40"},  // ends inside of matrices
                                  {"gated", "m=48,d=32,h=32"},
                                  {"three_products", "b=2,n=48"},
                                  {"rectified", "m=37,d=24,h=40"},
                                  {"normed", "m=40,n=48,k=32"},
                                  {"input", "m=48,n=32,k=40"},
                                  {"scaled", "m=64,n=32,k=48"}}) {
    for (const char* target : {"h100", "a100"}) {
      SCOPED_TRACE(absl::StrCat(op, " ", target));
      ExpectPointsCompute(Made(op, shape), *FindTarget(target), "split_operand/");
    }
  }
}

TEST(SplitOperandTest, PartsOfWhatTheKernelMakesAreStored) {
  for (const char* like :
       {" split_operand/matrix+matrix[stored=", " split_operand/warpgroup+warpgroup[stored="}) {
    ExpectPointsCompute(Made("mlp", "m=64,d=64,h=64"), *FindTarget("h100"), like);
    ExpectPointsCompute(Made("three_products", "b=2,n=64"), *FindTarget("h100"), like);
  }
  // By threads of a block line after line, and of sums that blocks share.
  for (const char* like : {" G.parts.staged=1", " G.parts.split_k=2", " Y.split_k=2"}) {
    ExpectPointsCompute(Made("mlp", "m=128,d=64,h=64"), *FindTarget("h100"), like);
  }
}

// Tiles of more rows than a box has: those of each part are boxes of their own.
TEST(SplitOperandTest, TilesOfPartsAreCutIntoBoxes) {
  const auto program = Made("mlp", "m=512,d=64,h=64");
  const Target target = *FindTarget("h100");
  const auto space = *SearchSpace::Create(program, target);
  const auto point = space.Parse(
      "split_operand/matrix+warpgroup[stored=G.parts]: G.parts.m.warps=4 G.parts.m.tiles=2 "
      "Y.m.groups=4 Y.m.tiles=2 Y.columns=64 Y.k.steps=2 Y.pipeline=2 Y.bulk=1");
  ASSERT_TRUE(point.ok()) << point.status();
  const auto lowered = space.Lower(*point);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(ToString(*lowered), HasSubstr("of 1 x 256 x 32"));
  ASSERT_TRUE(Verify(*lowered, target).ok());
  ExpectComputes(*program, *lowered, 1);
}

TEST(SplitOperandTest, CountsForWhatIsPlausible) {
  const auto program = Made("mlp", "m=256,d=256,h=256");
  const Target target = *FindTarget("h100");
  EXPECT_EQ(PeakGflops(*program, target), MatrixGflops(target, DType::kBFloat16));
  // The definition needs fewest operations, and the longest sum has twice the terms.
  EXPECT_LE(LeastFlops(*program), program->Flops());
  EXPECT_GE(LeastFlops(*program), 4.0 * 256 * 256 * 256);
  EXPECT_EQ(MostMatrixSteps(*program, target), 2 * 256 / 16);
}

}  // namespace
}  // namespace heddle::search_space::split_operand_test
