// Chains of two products on matrix units whose statistics are taken along: which programs are one,
// what their kernel looks like, and that it computes what the definition says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/ir/stmt.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/reference.h"
#include "search_space/schedule/operands.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/search_space/mutate.h"

namespace heddle::search_space::rolling_test {
namespace {

// Attention in several forms, and programs that lack something of it.
constexpr char kOperators[] = R"(
op attention(b, s, t, d, e) {
  in Q[b, s, d], K[b, t, d], V[b, t, e]
  T[z: b, i: s, j: t] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: t) T[z, i, r]
  E[z: b, i: s, j: t]: bfloat16 = exp((T[z, i, j] - M[z, i]) * 0.5)
  L[z: b, i: s] = sum(r: t) E[z, i, r]
  O[z: b, i: s, x: e] = sum(r: t) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: e]: float32 = O[z, i, x] / L[z, i]
}
op causal(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i, T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i, exp(T[z, i, j] / 2 - M[z, i] / 2), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op window(b, s, d, w) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i && i - r < w, T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i && i - j < w, exp(T[z, i, j] - M[z, i]), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op grouped(h, g, s, d) {
  in Q[h, g, s, d], K[h, s, d], V[h, s, d], B[g, s, s]: float32
  T[z: h, p: g, i: s, j: s] = sum(r: d) Q[z, p, i, r] * K[z, j, r]
  S[z: h, p: g, i: s, j: s] = T[z, p, i, j] * 0.25 + B[p, i, j]
  M[z: h, p: g, i: s] = max(r: s) S[z, p, i, r]
  E[z: h, p: g, i: s, j: s]: bfloat16 = exp(S[z, p, i, j] - M[z, p, i])
  L[z: h, p: g, i: s] = sum(r: s) E[z, p, i, r]
  O[z: h, p: g, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, x]
  out Y[z: h, p: g, i: s, x: d]: float32 = O[z, p, i, x] / L[z, p, i]
}
op heads_last(b, s, h, d) {
  in Q[b, s, h, d], K[b, s, h, d], V[b, s, h, d]
  T[z: b, p: h, i: s, j: s] = sum(r: d) Q[z, i, p, r] * K[z, j, p, r]
  M[z: b, p: h, i: s] = max(r: s) T[z, p, i, r]
  E[z: b, p: h, i: s, j: s]: bfloat16 = exp((T[z, p, i, j] - M[z, p, i]) * 0.5)
  L[z: b, p: h, i: s] = sum(r: s) E[z, p, i, r]
  O[z: b, p: h, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, p, x]
  out Y[z: b, i: s, p: h, x: d]: float32 = O[z, p, i, x] / L[z, p, i]
}
op without_statistics(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], G[b]: float32
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i, sigmoid(T[z, i, j]) * exp((j - i) * abs(G[z])), 0)
  out Y[z: b, i: s, x: d]: float32 = sum(r: s) E[z, i, r] * V[z, r, x]
}
op transposed_bias(s, d) {
  in Q[s, d], K[s, d], V[s, d], B[s, s], C[s, s]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) (T[i, r] + B[i, r] + C[i, r])
  E[i: s, j: s]: bfloat16 = exp(T[i, j] + B[j, i] + C[i, j] - M[i])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x]
}
op rounded_bias(s, d) {
  in Q[s, d], K[s, d], V[s, d], B[s, s]: float32, C[s, s], G[s, s]
  H[i: s, j: s]: bfloat16 = select(j <= i, G[i, j], 0)
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) (T[i, r] + bfloat16(B[i, r]) + C[i, r] + H[i, r])
  E[i: s, j: s]: bfloat16 = exp(T[i, j] + bfloat16(B[i, j]) + C[i, j] + H[i, j] - M[i])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x]
}
op bias_read_elsewhere(s, d) {
  in Q[s, d], K[s, d], V[s, d], B[s, s], C[s, s, 2]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) (T[i, r] + B[i, r] + C[i, r, 0])
  E[i: s, j: s]: bfloat16 = exp(T[i, j] + B[i, j] + C[i, j, 0] + C[i, j, 1] - M[i])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] + B[i, 0]
}
op added_mask(s, t, d) {
  in Q[s, d], K[t, d], V[t, d], A[t]: float32
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) (T[i, r] + A[r])
  E[i: s, j: t]: bfloat16 = exp(T[i, j] + A[j] - M[i])
  L[i: s] = sum(r: t) E[i, r]
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / L[i]
}
op window_of_numbers(b, s, d, w) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i && i - r < w, T[z, i, r], -inf)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i && i - j < w, exp(T[z, i, j] - M[z, i]), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op pooled_keys(s, t, d) {
  in Q[s, d], K[4 * t, d], V[t, d]
  A[j: t, x: d] = sum(r: 4) K[4 * j + r, x]
  C[j: t, x: d]: bfloat16 = A[j, x] / 4
  T[i: s, j: t] = sum(r: d) Q[i, r] * C[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp((T[i, j] - M[i]) * 0.25)
  L[i: s] = sum(r: t) E[i, r]
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / L[i]
}
op empty_rows(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) select(r < i % 3 * 40, T[i, r], -inf)
  E[i: s, j: t]: bfloat16 = select(j < i % 3 * 40, exp(T[i, j] - M[i]), 0)
  L[i: s] = sum(r: t) E[i, r]
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / max(L[i], 0.000001)
}
op with_maximum(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp(T[i, j] - M[i])
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] + M[i]
}
op smallest(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = min(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp((M[i] - T[i, j]) * 0.5)
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x]
}
op float32_weights(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i, T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s] = select(j <= i, exp((T[z, i, j] - M[z, i]) * 0.125), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op float32_biased(h, g, s, d) {
  in Q[h, g, s, d], K[h, s, d], V[h, s, d], B[g, s, s]
  T[z: h, p: g, i: s, j: s] = sum(r: d) Q[z, p, i, r] * K[z, j, r]
  S[z: h, p: g, i: s, j: s] = T[z, p, i, j] * 0.25 + B[p, i, j]
  M[z: h, p: g, i: s] = max(r: s) S[z, p, i, r]
  E[z: h, p: g, i: s, j: s] = exp(S[z, p, i, j] - M[z, p, i])
  L[z: h, p: g, i: s] = sum(r: s) E[z, p, i, r]
  O[z: h, p: g, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, x]
  out Y[z: h, p: g, i: s, x: d]: float32 = O[z, p, i, x] / L[z, p, i]
}
op unconverted(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  O[i: s, x: d] = sum(r: t) exp(T[i, r] - M[i]) * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op other_dependence(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = max(T[i, j] - M[i] + 1, 0)
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op growing(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp(M[i] - T[i, j])
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op sum_inside(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = sum(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp(T[i, j] - M[i])
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op other_row(s, d) {
  in Q[s, d], K[s, d], V[s, d]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) T[i, r]
  E[i: s, j: s]: bfloat16 = exp(T[i, j] - M[j])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
)";

std::shared_ptr<const TensorProgram> ProgramOf(const std::string& op, const std::string& shape,
                                               DType type = DType::kBFloat16) {
  const auto found = FindOperator(*ParseOperators(kOperators), op);
  return std::make_shared<const TensorProgram>(*found->Instantiate(*ParseShape(shape), type));
}

// Of sketches whose name begins so.
std::vector<Point> PointsOf(const SearchSpace& space, size_t most,
                            const char* sketch = "rolling:") {
  static constexpr int kDraws = 600;
  std::vector<Point> points;
  Rng rng(3);
  for (int draw = 0; draw < kDraws && points.size() < most; ++draw) {
    const auto point = space.Sample(rng);
    if (point && absl::StartsWith(space.Print(*point), sketch)) points.push_back(*point);
  }
  return points;
}

bool IsRolling(const std::string& op, const std::string& shape, DType type = DType::kBFloat16,
               const char* target = "h100") {
  const auto space = SearchSpace::Create(ProgramOf(op, shape, type), *FindTarget(target));
  return space.ok() && !PointsOf(*space, 1).empty();
}

TEST(RollingTest, IsFoundByWhatReadsWhat) {
  EXPECT_TRUE(IsRolling("attention", "b=2,s=64,t=64,d=32,e=32"));
  EXPECT_TRUE(IsRolling("causal", "b=2,s=64,d=32", DType::kBFloat16, "a100"));
  EXPECT_TRUE(IsRolling("grouped", "h=2,g=2,s=64,d=32"));
  EXPECT_TRUE(IsRolling("smallest", "s=64,t=64,d=32"));
  EXPECT_TRUE(IsRolling("with_maximum", "s=64,t=64,d=32"));
  // No device has units for float32, nor this one any.
  EXPECT_FALSE(IsRolling("attention", "b=2,s=64,t=64,d=32,e=32", DType::kFloat32));
  EXPECT_FALSE(IsRolling("attention", "b=2,s=64,t=64,d=32,e=32", DType::kBFloat16, "v100"));
  // Weights of float32 would lose digits.
  EXPECT_FALSE(IsRolling("unconverted", "s=64,t=64,d=32"));
  // Nothing makes good for another maximum, or for a sum before its end.
  EXPECT_FALSE(IsRolling("other_dependence", "s=64,t=64,d=32"));
  // Nothing added up so far may be multiplied by infinity.
  EXPECT_FALSE(IsRolling("growing", "s=64,t=64,d=32"));
  EXPECT_FALSE(IsRolling("sum_inside", "s=64,t=64,d=32"));
  EXPECT_FALSE(IsRolling("other_row", "s=64,d=32"));
  // 63 terms are no parts of whole matrices.
  EXPECT_FALSE(IsRolling("attention", "b=2,s=64,t=63,d=32,e=32"));
}

// Steps that take a minimum along, on programs that differ in how the weights depend on it alone.
TEST(RollingTest, StatisticsThatNothingMakesGoodForAreRefused) {
  const std::string shape = "s=64,t=64,d=32";
  const auto space = *SearchSpace::Create(ProgramOf("smallest", shape), *FindTarget("h100"));
  const std::vector<Step> steps = *space.Steps(PointsOf(space, 1).at(0));
  const auto applied = [&](const std::string& op) {
    Schedule schedule(ProgramOf(op, op == "other_row" ? "s=64,d=32" : shape));
    return std::string(Apply(steps, schedule).message());
  };
  EXPECT_EQ(applied("smallest"), "");
  for (const char* op : {"other_dependence", "growing", "sum_inside", "other_row"}) {
    EXPECT_THAT(applied(op), testing::HasSubstr("the terms of O depend on M.acc so that no factor "
                                                "makes good for what it is before its end"))
        << op;
  }
}

constexpr char kCausal[] =
    "rolling: warps=2 tiles=1 terms=32 held=1 pipeline=2 min_blocks=0 skip_masked=1 last_first=0";

void ExpectOneKernel(const char* shape, const char* text, const char* golden) {
  const auto space = *SearchSpace::Create(ProgramOf("causal", shape), *FindTarget("h100"));
  const auto point = space.Parse(text);
  ASSERT_TRUE(point.ok()) << point.status();
  const auto program = space.Lower(*point);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->kernels.size(), 1);
  tests::ExpectGolden(
      golden, absl::StrCat(space.Print(*point), "\n\n", ToString(*space.Steps(*point)), "\n",
                           ToString(*program)));
}

TEST(RollingTest, IsOneKernel) { ExpectOneKernel("b=2,s=64,d=32", kCausal, "loops/rolling.txt"); }

TEST(RollingTest, IsOneKernelOfWarpgroups) {
  ExpectOneKernel("b=2,s=256,d=32",
                  "rolling_warpgroup: groups=2 tiles=1 terms=64 pipeline=2 bulk=1 min_blocks=0 "
                  "skip_masked=1 last_first=1",
                  "loops/rolling_warpgroup.txt");
}

// Scores from some -40 to 40, the largest of a row anywhere in it: weights that are not multiplied
// when the maximum changes are wrong by many orders of magnitude.
TensorValues Inputs(const TensorProgram& program) {
  TensorValues values;
  std::mt19937_64 rng(7);
  std::normal_distribution<double> normal;
  for (const BufferRef& input : program.inputs) {
    for (int64_t i = 0; i < input->elements; ++i) {
      values[input->name].push_back(std::round(normal(rng) * 32) / 16);
    }
  }
  return values;
}

constexpr double kMostError = 8.0 / 256 * 2;

struct Case {
  const char *op, *shape;
  const char* sketch = "rolling:";
  double most_error = kMostError;
};

constexpr char kInParts[] = "split_operand/rolling:";
constexpr char kPadded[] = "pad_terms/rolling:";
constexpr char kInPartsOfWarpgroups[] = "split_operand/rolling_warpgroup:";
constexpr double kMostErrorInParts = 8 * 0x1p-17 * 4;

class RollingKernels : public testing::TestWithParam<Case> {};

double WorstError(const TensorValues& got, const TensorValues& expected) {
  double worst = 0;
  for (size_t e = 0; e < expected.at("Y").size(); ++e) {
    const double error = std::abs(got.at("Y")[e] - expected.at("Y")[e]);
    worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error);
  }
  return worst;
}

// Weights are rounded to 8 bits with the maximum so far and with that of the whole row: each is off
// by 2^-8 at most, and so is what they are averaged to, of values up to 8. Those in two parts are
// by 2^-17, and what is added up in float32 is by some times 2^-24.
TEST_P(RollingKernels, ComputeTheirProgram) {
  static constexpr size_t kPoints = 10;
  const Target target = *FindTarget("h100");
  const auto program = ProgramOf(GetParam().op, GetParam().shape);
  const auto space = *SearchSpace::Create(program, target);
  const std::vector<Point> points = PointsOf(space, kPoints, GetParam().sketch);
  ASSERT_EQ(points.size(), kPoints);
  TensorValues expected = Inputs(*program);
  EvaluateAll(*program, expected);
  for (size_t i = 0; i < points.size(); ++i) {
    SCOPED_TRACE(space.Print(points[i]));
    const auto lowered = space.Lower(points[i]);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const absl::Status verified = Verify(*lowered, target);
    ASSERT_TRUE(verified.ok()) << verified << ToString(*lowered);
    TensorValues got = Inputs(*program);
    const absl::Status ran = Interpret(*lowered, got, {.seed = i + 1});
    ASSERT_TRUE(ran.ok()) << ran << ToString(*lowered);
    EXPECT_LT(WorstError(got, expected), GetParam().most_error);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RollingKernels,
    testing::Values(
        Case{"attention", "b=2,s=48,t=96,d=32,e=16"},
        Case{"attention", "b=1,s=37,t=64,d=24,e=40"},  // ends inside of matrices
        Case{"attention", "b=1,s=20,t=48,d=16,e=12"}, Case{"causal", "b=2,s=64,d=16"},
        Case{"causal", "b=1,s=80,d=16"}, Case{"window", "b=2,s=96,d=16,w=20"},
        Case{"grouped", "h=2,g=2,s=32,d=16"}, Case{"window_of_numbers", "b=2,s=96,d=16,w=20"},
        Case{"window_of_numbers", "b=1,s=160,d=16,w=20", "rolling_warpgroup:"},
        Case{"empty_rows", "s=40,t=96,d=16"},
        Case{"empty_rows", "s=80,t=96,d=16", "rolling_warpgroup:"},
        Case{"with_maximum", "s=40,t=96,d=16", "rolling:", 64 * kMostError},
        Case{"with_maximum", "s=96,t=128,d=16", "rolling_warpgroup:", 64 * kMostError},
        Case{"heads_last", "b=2,s=48,h=3,d=16"},
        Case{"heads_last", "b=1,s=96,h=2,d=16", "rolling_warpgroup:"},
        // Sums, and no averages, of weights that depend on their own scores alone.
        Case{"without_statistics", "b=2,s=48,d=16", "rolling:", 4 * kMostError},
        Case{"without_statistics", "b=1,s=96,d=16", "rolling_warpgroup:", 4 * kMostError},
        Case{"attention", "b=1,s=80,t=96,d=32,e=16", "rolling_warpgroup:"},
        Case{"attention", "b=1,s=37,t=64,d=48,e=48", "rolling_warpgroup:"},
        Case{"causal", "b=1,s=192,d=16", "rolling_warpgroup:"},
        Case{"window", "b=1,s=160,d=16,w=20", "rolling_warpgroup:"},
        Case{"grouped", "h=2,g=2,s=64,d=16", "rolling_warpgroup:"},
        Case{"grouped", "h=1,g=2,s=96,d=16", "rolling_warpgroup:"},
        Case{"float32_weights", "b=2,s=64,d=16", kInParts, kMostErrorInParts},
        Case{"float32_weights", "b=1,s=80,d=24", kInParts, kMostErrorInParts},
        Case{"float32_biased", "h=2,g=2,s=48,d=16", kInParts, kMostErrorInParts},
        Case{"float32_weights", "b=1,s=96,d=32", kInPartsOfWarpgroups, kMostErrorInParts},
        // Terms that are no whole matrices.
        Case{"attention", "b=1,s=20,t=77,d=16,e=16", kPadded},
        Case{"causal", "b=2,s=37,d=16", kPadded}, Case{"window", "b=1,s=50,d=16,w=20", kPadded},
        Case{"grouped", "h=1,g=2,s=37,d=16", kPadded},
        Case{"attention", "b=1,s=37,t=197,d=16,e=16", "pad_terms/rolling_warpgroup:"},
        Case{"float32_weights", "b=1,s=37,d=16", kPadded, kMostErrorInParts},
        // The same weights in a chain that keeps rows of scores.
        Case{"causal", "b=2,s=64,d=16", "chain:"}, Case{"window", "b=2,s=64,d=16,w=20", "chain:"}),
    [](const auto& info) {
      std::string name = absl::StrCat(info.param.sketch, info.param.op, "_", info.param.shape);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

// A mask that is added leaves out keys that come first: the largest score so far is -infinity, and
// the weights of these are 0 all the same.
TEST(RollingTest, KeysThatComeFirstMayBeLeftOut) {
  const auto program = ProgramOf("added_mask", "s=32,t=96,d=16");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto inputs = [&] {
    TensorValues values = Inputs(*program);
    for (size_t j = 0; j < 50; ++j) values.at("A")[j] = -HUGE_VAL;
    return values;
  };
  TensorValues expected = inputs();
  EvaluateAll(*program, expected);
  for (const Point& point : PointsOf(space, 4)) {
    TensorValues got = inputs();
    const absl::Status ran = Interpret(*space.Lower(point), got, {});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_LT(WorstError(got, expected), kMostError) << space.Print(point);
  }
}

// Behind kernels that make its operands a chain is one of the partition's.
TEST(RollingTest, MayComeBehindOtherKernels) {
  const auto program = ProgramOf("pooled_keys", "s=4096,t=1024,d=64");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  Rng rng(1);
  size_t rolling = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string text = space.Print(*space.Sample(rng));
    const std::string sketch = text.substr(0, text.find(':'));
    const bool is_part = absl::StartsWith(sketch, "parts/");
    rolling += is_part && absl::StrContains(sketch, "+rolling") ? 1 : 0;
  }
  EXPECT_GE(rolling, 10);
}

// A bias, such as `grouped` has, is read once for an iteration, before the scores are there; what
// another lane holds is not.
TEST(RollingTest, WhatIsAddedToScoresIsReadAhead) {
  for (const char* rule : {"rolling:", "rolling_warpgroup:"}) {
    const auto program = ProgramOf("grouped", "h=2,g=2,s=64,d=16");
    const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
    size_t ahead = 0;
    for (const Point& point : PointsOf(space, 20, rule)) {
      const std::string text = space.Print(point);
      if (!absl::StrContains(text, "read_ahead=1")) continue;
      ++ahead;
      int reads = 0, before = 0;
      bool multiplied = false;
      VisitStmts(space.Lower(point)->kernels.at(0).body, [&](const StmtNode& s) {
        multiplied = multiplied || s.intrinsic == Intrinsic::kMatrixMultiply ||
                     s.intrinsic == Intrinsic::kWarpgroupMultiply;
        if (s.kind != StmtNode::Kind::kStore) return;
        for (const Expr& load : LoadsIn(s.value)) {
          if (load->buffer->name != "B") continue;
          ++reads;
          before += multiplied ? 0 : 1;
        }
      });
      EXPECT_EQ(reads, 1) << text;
      EXPECT_EQ(before, 1) << text;
    }
    EXPECT_GE(ahead, 5) << rule;
  }
  const auto domain = [](const char* op, const char* shape) {
    std::set<bool> ahead;
    const auto space = *SearchSpace::Create(ProgramOf(op, shape), *FindTarget("h100"));
    for (const Point& point : PointsOf(space, 20)) {
      ahead.insert(absl::StrContains(space.Print(point), "read_ahead=1"));
    }
    return ahead;
  };
  EXPECT_THAT(domain("causal", "b=2,s=64,d=32"), testing::ElementsAre(false));
  EXPECT_THAT(domain("added_mask", "s=64,t=64,d=32"), testing::ElementsAre(false)) << "no rows";
}

// Of several tensors only those that the chain alone reads, at the score's own element, as float32.
TEST(RollingTest, WhatIsReadOtherwiseIsNotHeld) {
  const auto held = [](const char* op) {
    const auto program = ProgramOf(op, "s=64,d=16");
    const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
    TensorValues expected = Inputs(*program);
    EvaluateAll(*program, expected);
    std::set<std::string> tensors;
    for (const char* rule : {"rolling:", "rolling_warpgroup:"}) {
      const std::vector<Point> points = PointsOf(space, 8, rule);
      EXPECT_EQ(points.size(), 8) << op << " " << rule;
      for (const Point& point : points) {
        const std::vector<Step> steps = *space.Steps(point);
        for (const Step& step : steps) {
          const auto* read = std::get_if<CacheRead>(&step);
          if (read != nullptr && read->scope == Scope::kLocal) tensors.insert(read->tensor);
        }
        TensorValues got = Inputs(*program);
        const auto lowered = space.Lower(point);
        EXPECT_TRUE(lowered.ok()) << lowered.status() << space.Print(point);
        if (!lowered.ok()) continue;
        const absl::Status ran = Interpret(*lowered, got, {});
        EXPECT_TRUE(ran.ok()) << ran;
        EXPECT_LT(WorstError(got, expected), 64 * kMostError) << space.Print(point);  // a sum of 64
      }
    }
    return tensors;
  };
  EXPECT_THAT(held("transposed_bias"), testing::ElementsAre("C"));
  EXPECT_THAT(held("rounded_bias"), testing::ElementsAre("C"));
  EXPECT_THAT(held("bias_read_elsewhere"), testing::IsEmpty());
}

// Weights that are written behind the last fence, or while products read them, are seen.
TEST(RollingTest, WeightsInRegistersAreFencedAndWaitedFor) {
  const auto program = ProgramOf("attention", "b=1,s=64,t=128,d=16,e=16");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto point = space.Parse(
      "rolling_warpgroup: groups=1 tiles=1 terms=64 pipeline=2 bulk=0 min_blocks=0 skip_masked=0 "
      "last_first=0");
  ASSERT_TRUE(point.ok()) << point.status();
  const auto without = [&](Intrinsic intrinsic, const char* buffer) {
    Program lowered = *space.Lower(*point);
    Stmt& body = lowered.kernels.at(0).body;
    body = RewriteStmt(
        body,
        [&](const Stmt& s) -> Stmt {
          const bool is_it = s->kind == StmtNode::Kind::kIntrin && s->intrinsic == intrinsic &&
                             (buffer == nullptr || s->buffer->name == buffer);
          return is_it ? Seq({}) : nullptr;
        },
        nullptr);
    TensorValues got = Inputs(*program);
    return std::string(Interpret(lowered, got, {}).message());
  };
  EXPECT_EQ(without(Intrinsic::kOperandFence, "none"), "");
  EXPECT_THAT(without(Intrinsic::kProductWait, "O.acc"), testing::HasSubstr("product"));
  EXPECT_THAT(without(Intrinsic::kProductWait, "T.acc"), testing::HasSubstr("product"));
  EXPECT_THAT(without(Intrinsic::kOperandFence, nullptr),
              testing::HasSubstr("was written since the last fence of operands"));
}

// Whoever does not make good for another maximum, in the sum of weights or in what they weigh, is
// seen by that.
TEST(RollingTest, AMissingFactorIsSeen) {
  const auto program = ProgramOf("causal", "b=2,s=64,d=16");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  TensorValues expected = Inputs(*program);
  EvaluateAll(*program, expected);
  for (const char* sum : {"L.acc", "O"}) {
    Program lowered = *space.Lower(*space.Parse(kCausal));
    int dropped = 0;
    Stmt& body = lowered.kernels.at(0).body;
    body = RewriteStmt(
        body,
        [&](const Stmt& s) -> Stmt {
          const bool scales = s->kind == StmtNode::Kind::kStore && s->buffer->name == sum &&
                              s->value->op == Op::kMul &&
                              absl::StartsWith(s->value->args[1]->buffer->name, "M.acc.factor");
          if (!scales) return nullptr;
          ++dropped;
          return Seq({});
        },
        nullptr);
    EXPECT_GE(dropped, 1) << sum;
    TensorValues got = Inputs(*program);
    const absl::Status ran = Interpret(lowered, got, {});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_GT(WorstError(got, expected), 4 * kMostError) << sum;
  }
}

// Copies that are started between the products of a tile are of another one: a tile that the mask
// leaves out has not been copied, so that nothing of it is read.
TEST(RollingTest, NothingIsReadOfTilesThatAMaskLeavesOut) {
  const auto program = ProgramOf("window", "b=2,s=64,d=16,w=20");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto point = space.Parse(
      "chain: Y.z.vthread=1 Y.z.warps=1 Y.z.lanes=1 Y.z.tile=1 Y.i.vthread=1 Y.i.warps=1 "
      "Y.i.lanes=4 Y.i.tile=8 Y.x.vthread=1 Y.x.warps=4 Y.x.lanes=4 Y.x.tile=1 Y.r.inner=32 "
      "Y.T.fetch=4 Y.T.pad=0 Y.T.align=1 Y.V.fetch=4 Y.V.pad=0 Y.V.align=1 Y.fragments_out=0 "
      "Y.pipeline=2 Y.unroll=1 Y.prefetch=0 Y.interleave=1 Y.min_blocks=1 Y.slice_k=4 T.lanes=32 "
      "T.tile=2 T.warp_rows=8 T.pad=16 T.r.inner=16 T.one_tile=1 T.Q.fetch=8 T.Q.pad=0 T.Q.align=1 "
      "T.K.fetch=2 T.K.pad=0 T.K.align=1 T.fragments_out=0 T.pipeline=4 T.unroll=0 T.prefetch=0 "
      "T.interleave=0 skip_masked=1 last_first=1");
  ASSERT_TRUE(point.ok()) << point.status();
  TensorValues expected = Inputs(*program), got = Inputs(*program);
  EvaluateAll(*program, expected);
  const absl::Status ran = Interpret(*space.Lower(*point), got, {});
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_LT(WorstError(got, expected), kMostError);
}

// What keeps products, copies and threads apart cannot be left out, but for one of the two fences,
// for sums and for weights, in front of the second product.
TEST(RollingTest, MistakesBesideProductsAreSeen) {
  using tests::Removal;
  const auto program = ProgramOf("causal", "b=2,s=256,d=32");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto point = space.Parse(
      "rolling_warpgroup: groups=2 tiles=1 terms=64 pipeline=2 bulk=1 min_blocks=0 "
      "skip_masked=0 last_first=0");
  ASSERT_TRUE(point.ok()) << point.status();
  const Program lowered = *space.Lower(*point);
  const std::tuple<Removal, int, int> mistakes[] = {{Removal::kHandBack, 1, 0},
                                                    {Removal::kPhaseWait, 1, 0},
                                                    {Removal::kProductWait, 2, 0},
                                                    {Removal::kOperandFence, 3, 2}};
  for (const auto& [what, count, needless] : mistakes) {
    int n = 0, unseen = 0;
    for (; const auto damaged = tests::Remove(lowered, what, n); ++n) {
      TensorValues got = Inputs(*program);
      unseen += Interpret(*damaged, got, {}).ok() ? 1 : 0;
    }
    EXPECT_EQ(n, count) << ToString(lowered);
    EXPECT_EQ(unseen, needless) << ToString(lowered);
  }
}

// What does not fit is refused for the limit that it breaks.
TEST(RollingTest, RefusalsNameTheLimit) {
  const auto refusal = [](const std::string& changed, const std::string& to) {
    const auto space =
        *SearchSpace::Create(ProgramOf("causal", "b=2,s=2048,d=128"), *FindTarget("h100"));
    std::string text = kCausal;
    text.replace(text.find(changed), changed.size(), to);
    const auto point = space.Parse(text);
    return point.ok() ? std::string(space.Check(*point).message())
                      : std::string(point.status().message());
  };
  EXPECT_EQ(refusal("last_first=0", "last_first=0"), "");
  EXPECT_EQ(refusal("skip_masked=1 last_first=0", "skip_masked=0 last_first=1"),
            "Y: blocks that leave nothing out have all the same to do");
  EXPECT_THAT(refusal("tiles=1", "tiles=4"), testing::HasSubstr("registers, at most"));
  EXPECT_THAT(refusal("terms=32", "terms=48"), testing::HasSubstr("terms"));
  EXPECT_THAT(refusal("pipeline=2 min_blocks=0", "pipeline=4 min_blocks=4"),
              testing::HasSubstr("blocks a multiprocessor, at most 3"));
}

}  // namespace
}  // namespace heddle::search_space::rolling_test
