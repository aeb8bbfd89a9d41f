// That a lost term shows: computed from definitions alone, without a device, at real lengths.
#include "measure/judge/peaks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "measure/device/compare.h"
#include "measure/judge/criteria.h"
#include "search_space/check/interpret.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/samples.h"
#include "search_space/sketch/search_space.h"

namespace heddle::measure::peaks_test {
namespace {

using search_space::SamplePoint;
using search_space::TensorProgram;

// `term` stands at the sum in question, of r below n.
struct Operator {
  const char* name;
  const char* text;
  const char* term;
};

constexpr Operator kOperators[] = {
    {"row_mean", "op f(m, n) { in X[m, n] S[i: m] = sum(r: n) @ out Y[i: m] = S[i] / n }",
     "X[i, r]"},
    {"column_mean", "op f(m, n) { in X[n, m] S[i: m] = sum(r: n) @ out Y[i: m] = S[i] / n }",
     "X[r, i]"},
    {"softmax",
     "op f(m, n) { in X[m, n] M[i: m] = max(r: n) X[i, r] "
     "E[i: m, j: n] = exp(X[i, j] - M[i]) S[i: m] = sum(r: n) @ "
     "out Y[i: m, j: n] = E[i, j] / S[i] }",
     "E[i, r]"},
    {"layer_norm's mean",
     "op f(m, n) { in X[m, n], G[n], B[n] S[i: m] = sum(r: n) @ "
     "D[i: m, j: n] = X[i, j] - S[i] / n V[i: m] = sum(r: n) D[i, r] * D[i, r] "
     "out Y[i: m, j: n] = D[i, j] * rsqrt(V[i] / n + 1e-5) * G[j] + B[j] }",
     "X[i, r]"},
    {"layer_norm's variance",
     "op f(m, n) { in X[m, n], G[n], B[n] S[i: m] = sum(r: n) X[i, r] "
     "D[i: m, j: n] = X[i, j] - S[i] / n V[i: m] = sum(r: n) @ "
     "out Y[i: m, j: n] = D[i, j] * rsqrt(V[i] / n + 1e-5) * G[j] + B[j] }",
     "(D[i, r] * D[i, r])"},
    {"rms_norm",
     "op f(m, n) { in X[m, n], G[n] Q[i: m] = sum(r: n) @ "
     "out Y[i: m, j: n] = X[i, j] * rsqrt(Q[i] / n + 1e-5) * G[j] }",
     "(X[i, r] * X[i, r])"},
    {"log_sum_exp",
     "op f(m, n) { in X[m, n] M[i: m] = max(r: n) X[i, r] S[i: m] = sum(r: n) @ "
     "out Y[i: m] = log(S[i]) + M[i] }",
     "exp(X[i, r] - M[i])"},
    {"mse_loss", "op f(m, n) { in A[m, n], B[m, n] S[i: m] = sum(r: n) @ out Y[i: m] = S[i] / n }",
     "((A[i, r] - B[i, r]) * (A[i, r] - B[i, r]))"},
    {"linear_gelu",
     "op f(m, n) { in A[m, n], W[n, m], B[m] T[i: m, j: m] = sum(r: n) @ "
     "out Y[i: m, j: m] = (T[i, j] + B[j]) * sigmoid(T[i, j] + B[j]) }",
     "(A[i, r] * W[r, j])"},
    {"attention's sum",
     "op f(m, n) { in Q[m, 64], K[n, 64], V[n, 64] T[i: m, j: n] = sum(d: 64) Q[i, d] * K[j, d] "
     "P[i: m, j: n] = T[i, j] * 0.125 M[i: m] = max(r: n) P[i, r] "
     "E[i: m, j: n] = exp(P[i, j] - M[i]) S[i: m] = sum(r: n) @ "
     "O[i: m, d: 64] = sum(r: n) E[i, r] * V[r, d] out Y[i: m, d: 64] = O[i, d] / S[i] }",
     "E[i, r]"},
    {"attention's values",
     "op f(m, n) { in Q[m, 64], K[n, 64], V[n, 64] T[i: m, j: n] = sum(d: 64) Q[i, d] * K[j, d] "
     "P[i: m, j: n] = T[i, j] * 0.125 M[i: m] = max(r: n) P[i, r] "
     "E[i: m, j: n] = exp(P[i, j] - M[i]) S[i: m] = sum(r: n) E[i, r] "
     "O[i: m, d: 64] = sum(r: n) @ out Y[i: m, d: 64] = O[i, d] / S[i] }",
     "(E[i, r] * V[r, d])"},
};

TensorProgram Instance(const Operator& op, const std::string& term, int64_t m, int64_t n) {
  auto operators = search_space::ParseOperators(absl::StrReplaceAll(op.text, {{"@", term}}));
  EXPECT_TRUE(operators.ok()) << op.name << ": " << operators.status();
  auto program =
      operators->front().Instantiate({{"m", m}, {"n", n}}, search_space::DType::kFloat32);
  EXPECT_TRUE(program.ok()) << op.name << ": " << program.status();
  return *std::move(program);
}

std::vector<SamplePoint> Samples(const TensorProgram& program, const Peaks& peaks, int64_t count) {
  return search_space::EvaluateSamples(
      program, [&](int tensor, int64_t offset) { return peaks.At(tensor, offset); }, count,
      /*seed=*/1, /*max_operations=*/int64_t{1} << 30, /*threads=*/1);
}

// What losing the term costs, in units of what is allowed.
double EffectOf(const Operator& op, const char* lost, int64_t m, int64_t n) {
  const int64_t count = 4096;  // as a validator samples
  const TensorProgram right = Instance(op, op.term, m, n);
  const TensorProgram wrong =
      Instance(op, std::string("select(r == ") + lost + ", 0, " + op.term + ")", m, n);
  const Peaks peaks(right, 1);
  const std::vector<SamplePoint> expected = Samples(right, peaks, count),
                                 got = Samples(wrong, peaks, count);
  const Allowed allowed =
      AllowedOf(right, InputKind::kPeaks, search_space::DType::kFloat32, expected, 0);
  double effect = 0;
  for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    EXPECT_EQ(expected[i].offset, got[i].offset);
    const auto value = static_cast<float>(expected[i].value);
    EXPECT_TRUE(std::isfinite(value)) << op.name;
    effect =
        std::max(effect, ErrorOf(Distance(static_cast<float>(got[i].value), value, allowed.slack),
                                 allowed.absolute));
  }
  return effect;
}

TEST(PeaksTest, OneLostTermShows) {
  for (const Operator& op : kOperators) {
    const bool attention = std::string(op.name).find("attention") == 0;
    for (const int64_t n : {1024, 8192, 65536}) {
      if (attention && n > 1024) break;  // would take seconds
      for (const char* lost : {"0", "n - 1"}) {
        EXPECT_GT(EffectOf(op, lost, attention ? 32 : 2, n), 1)
            << op.name << " of " << n << " without term " << lost;
      }
    }
  }
}

// The default schedule, in which threads share a sum, and the naive one, as float32 computes them.
TEST(PeaksTest, RightKernelsAreFarWithinWhatIsAllowed) {
  const search_space::Target target = *search_space::FindTarget("h100");
  for (const Operator& op : kOperators) {
    SCOPED_TRACE(op.name);
    const bool attention = std::string(op.name).find("attention") == 0;
    const auto program =
        std::make_shared<const TensorProgram>(Instance(op, op.term, 4, attention ? 256 : 4200));
    const Peaks peaks(*program, 1);
    const std::vector<SamplePoint> expected = Samples(*program, peaks, 4096);
    const Allowed allowed =
        AllowedOf(*program, InputKind::kPeaks, search_space::DType::kFloat32, expected, 0);
    const auto space = search_space::SearchSpace::Create(program, target);
    ASSERT_TRUE(space.ok()) << space.status();
    for (const auto& steps :
         {search_space::NaiveSteps(*program), *space->Steps(space->Default())}) {
      const auto lowered = search_space::LowerSteps(program, steps);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      search_space::TensorValues values;
      for (size_t t = 0; t < program->inputs.size(); ++t) {
        std::vector<double>& v = values[program->inputs[t]->name];
        for (int64_t i = 0; i < program->inputs[t]->elements; ++i) {
          v.push_back(peaks.At(static_cast<int>(t), i));
        }
      }
      const absl::Status ran = search_space::Interpret(*lowered, values, {.seed = 1});
      ASSERT_TRUE(ran.ok()) << ran;
      double error = 0;
      for (const SamplePoint& s : expected) {
        const auto got = static_cast<float>(values.at("Y").at(static_cast<size_t>(s.offset)));
        error = std::max(error, ErrorOf(Distance(got, static_cast<float>(s.value), allowed.slack),
                                        allowed.absolute));
      }
      EXPECT_LT(error, 0.25);
    }
  }
}

TEST(PeaksTest, EveryPositionIsLargeOnceInAsManyRows) {
  const Operator& op = kOperators[0];
  const int64_t width = 1000;
  const TensorProgram program = Instance(op, op.term, 4096, width);
  const Peaks peaks(program, 3);
  const int64_t spacing = peaks.spacing();
  std::vector<int> in_column(width);
  for (int64_t row = spacing; row < 2 * spacing; ++row) {
    int in_row = 0;
    for (int64_t column = 0; column < width; ++column) {
      const bool large = peaks.IsLarge(0, row * width + column);
      in_column[static_cast<size_t>(column)] += large ? 1 : 0;
      in_row += large ? 1 : 0;
      EXPECT_EQ(large, peaks.At(0, row * width + column) > 1.5f);
    }
    EXPECT_NEAR(in_row, static_cast<double>(width) / static_cast<double>(spacing), 1);
  }
  for (const int count : in_column) EXPECT_EQ(count, 1);
  EXPECT_TRUE(peaks.IsLarge(0, 0));
  EXPECT_TRUE(peaks.IsLarge(0, 4096 * width - 1));
}

// Tensors that no sum reads do not count.
TEST(PeaksTest, EndsAreLargeOfEveryOtherTensorThatIsReduced) {
  const Operator op = {"biased product",
                       "op f(m, n) { in B[m], X[m, n], W[n] S[i: m] = sum(r: n) @ "
                       "out Y[i: m] = S[i] + B[i] }",
                       "X[i, r] * W[r]"};
  const int64_t m = 4, n = 1000;
  const TensorProgram program = Instance(op, op.term, m, n);
  const Peaks peaks(program, 1);
  for (const int64_t end : {int64_t{0}, m * n - 1}) EXPECT_TRUE(peaks.IsLarge(1, end)) << end;
  for (const int64_t end : {int64_t{0}, n - 1}) EXPECT_FALSE(peaks.IsLarge(2, end)) << end;
}

}  // namespace
}  // namespace heddle::measure::peaks_test
