// Factors that all terms of a sum have, multiplied behind it: which are found, what a program
// becomes, and what is refused.
#include "search_space/schedule/rewrites/algebra/hoist_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "search_space/ir/expr/float_format.h"
#include "search_space/sketch/programs/form.h"
#include "search_space/sketch/programs/least_flops.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::hoist_factors_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op divided(m, n, k) {
  in A[m, k], B[k, n], L[m]
  out Y[i: m, j: n] = sum(r: k) A[i, r] / (abs(L[i]) + 1) * B[r, j]
}
op softmax_of_a_stage(m, n, k) {
  in A[m, k], B[k, n]
  L[i: m] = sum(r: k) abs(A[i, r]) + 1
  P[i: m, r: k] = A[i, r] / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op two_scales(m, n, k) {
  in A[m, k], B[k, n], S[m], T[n]
  N[i: m, r: k] = A[i, r] * S[i]
  W[r: k, j: n] = T[j] * B[r, j] * 0.5
  D[i: m, j: n] = sum(r: k) N[i, r] * W[r, j]
  out Y[i: m, j: n] = max(D[i, j], 0)
}
op reciprocal(m, n, k) {
  in A[m, k], B[k, n], S[m, n]
  out Y[i: m, j: n] = sum(r: k) S[i, j] / (abs(A[i, r]) + abs(B[r, j]) + 1)
}
op softmax_of_scores(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  L[i: m] = sum(r: k) exp(T[i, r] / 64)
  P[i: m, r: k] = exp(T[i, r] / 64) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op one_tensor(m, n, k) {
  in A[m, k], S[m, n]
  out Y[i: m, j: n] = sum(r: k) S[i, j] / (abs(A[i, r]) + 1)
}
op normalised(m, n, k) {
  in A[m, k], B[k, n], S[m]
  P[i: m, r: k] = exp(A[i, r] / 64) * S[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op read_twice(m, n, k) {
  in A[m, k], B[k, n], L[m]
  P[i: m, r: k] = A[i, r] / (abs(L[i]) + 1)
  out Y[i: m, j: n] = sum(r: k) P[i, r] * P[i, r] * B[r, j]
}
op rounded(m, n, k) {
  in A[m, k], B[k, n], L[m]
  P[i: m, r: k]: bfloat16 = A[i, r] / (abs(L[i]) + 1)
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op all_masked(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) T[i, r]
  L[i: m] = sum(r: k) select(r <= i, exp((T[i, r] - M[i]) / 64), 0)
  P[i: m, r: k]: float16 = select(r <= i, exp((T[i, r] - M[i]) / 64), 0) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op most_masked(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) select(r <= i, T[i, r], -1.0e30)
  L[i: m] = sum(r: k) exp((T[i, r] - M[i]) / 64)
  P[i: m, r: k]: float16 = exp((T[i, r] - M[i]) / 64) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op most_of_another(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) T[i, r]
  L[i: m] = sum(r: k) exp((T[i, r] - M[0]) / 64)
  P[i: m, r: k]: float16 = exp((T[i, r] - M[0]) / 64) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op most_of_halves(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) 0.5 * T[i, r]
  L[i: m] = sum(r: k) exp((T[i, r] - M[i]) / 64)
  P[i: m, r: k]: float16 = exp((T[i, r] - M[i]) / 64) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op another_total(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) T[i, r]
  L[i: m] = sum(r: k) exp((T[i, r] - M[i]) / 64) * exp((T[i, r] - M[i]) / 64)
  P[i: m, r: k]: float16 = exp((T[i, r] - M[i]) / 64) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op multiplied(m, n, k) {
  in A[m, n], B[k, n], C[m]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) T[i, r]
  P[i: m, r: k]: float16 = exp((T[i, r] - M[i]) / 64) * C[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op large_elsewhere(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) T[i, r]
  L[i: m] = sum(r: k) select(r <= i, exp((T[i, r] - M[i]) / 64), -100000)
  P[i: m, r: k]: float16 = select(r <= i, exp((T[i, r] - M[i]) / 64), -100000) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op large_weights(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k] = sum(x: n) A[i, x] * B[r, x]
  L[i: m] = sum(r: k) exp(T[i, r] / 64)
  P[i: m, r: k]: float16 = exp(T[i, r] / 64) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op rounded_scores(m, n, k) {
  in A[m, n], B[k, n]
  T[i: m, r: k]: float16 = sum(x: n) A[i, x] * B[r, x]
  M[i: m] = max(r: k) T[i, r]
  L[i: m] = sum(r: k) exp((T[i, r] - M[i]) / 64)
  P[i: m, r: k]: float16 = exp((T[i, r] - M[i]) / 64) / L[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op is_output(m, n, k) {
  in A[m, k], B[k, n], L[m]
  out P[i: m, r: k] = A[i, r] / (abs(L[i]) + 1)
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op masked(m, n, k) {
  in A[m, k], B[k, n], L[m]
  out Y[i: m, j: n] = sum(r: k) select(r <= i && i + 1 < m, A[i, r] * L[(i + 1) % m], 0) * B[r, j]
}
op constant(m, n, k) {
  in A[m, k], B[k, n]
  out Y[i: m, j: n] = sum(r: k) 0.5 * A[i, r] * B[r, j]
}
op nothing_left(m, n, k) {
  in A[m, n]
  out Y[i: m, j: n] = sum(r: k) A[i, j] * (r + 1)
}
op two_norms(m, n, k) {
  in A[m, k], B[k, n]
  P[i: m] = sum(r: k) A[i, r] * A[i, r]
  Q[j: n] = sum(r: k) B[r, j] * B[r, j]
  U[i: m, r: k] = A[i, r] / (sqrt(P[i]) + 0.5)
  V[r: k, j: n] = B[r, j] / (sqrt(Q[j]) + 0.5)
  out Y[i: m, j: n] = sum(r: k) U[i, r] * V[r, j]
}
op eighths(m, n, k) {
  in A[m, k], B[k, n], L[m]
  P[i: m, r: k] = A[i, r] / 8 / (abs(L[i]) + 1)
  out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j]
}
op maximum(m, n, k) {
  in A[m, k], S[m], B[n]
  out Y[i: m, j: n] = max(r: k) A[i, r] * S[i] * B[j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, DType type = DType::kFloat32) {
  return InstantiatedFrom(kOperators, op, "m=3,n=4,k=5", type);
}

std::vector<std::string> Steps(const TensorProgram& program) {
  std::vector<std::string> steps;
  for (const Step& s : FormOf(std::make_shared<TensorProgram>(program)).steps) {
    steps.push_back(ToString(s));
  }
  return steps;
}

TEST(HoistFactorsTest, StagesThatNobodyElseReadsAreTakenApart) {
  const auto softmax = WithHoistedFactors(*Made("softmax_of_a_stage"), "Y");
  ASSERT_TRUE(softmax.ok()) << softmax.status();
  ASSERT_EQ((*softmax)->stages.size(), 3);  // L, Y.sum, Y
  EXPECT_EQ(ToString((*softmax)->stages[1].body), "A[i, r] * B[r, j]");
  EXPECT_FALSE((*softmax)->stages[1].is_output);
  EXPECT_TRUE((*softmax)->stages[2].is_output);
  EXPECT_EQ(ToString((*softmax)->stages.back().body), "Y.sum[i, j] / L[i]");

  const auto scales = WithHoistedFactors(*Made("two_scales"), "D");
  ASSERT_TRUE(scales.ok()) << scales.status();
  ASSERT_EQ((*scales)->stages.size(), 3);
  EXPECT_EQ(ToString((*scales)->stages[0].body), "A[i, r] * (B[r, j] * 0.5)");
  EXPECT_EQ(ToString((*scales)->stages[1].body), "D.sum[i, j] * S[i] * T[j]");
}

// Has it tensors of 16 bits?
bool Rounds(const TensorProgram& program) {
  return std::any_of(program.stages.begin(), program.stages.end(),
                     [](const Stage& s) { return IsHalf(s.tensor->dtype); });
}

TEST(HoistFactorsTest, ComputesTheSame) {
  for (const char* op : {"softmax_of_a_stage", "two_scales", "softmax_of_scores", "two_norms",
                         "rounded", "rounded_scores"}) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
      const auto program = Made(op, type);
      const Form form = FormOf(program);
      ASSERT_FALSE(form.steps.empty()) << op;
      TensorValues expected = IntegerInputs(*program), got = expected;
      EvaluateAll(*program, expected);
      EvaluateAll(*form.program, got);
      for (size_t i = 0; i < expected.at("Y").size(); ++i) {
        const double value = expected.at("Y")[i], most = Rounds(*program) ? 0x1p-8 : 1e-5;
        EXPECT_NEAR(got.at("Y")[i], value, most * (std::abs(value) + 1)) << op << " " << i;
      }
    }
  }
}

TEST(HoistFactorsTest, EachTermHasFewerOperations) {
  const auto program = Made("softmax_of_a_stage");
  EXPECT_LT(LeastFlops(*program), program->Flops());
}

TEST(HoistFactorsTest, IsOfEveryProgramsForm) {
  EXPECT_THAT(Steps(*Made("softmax_of_a_stage")), ElementsAre("hoist_factors(Y)"));
  EXPECT_THAT(Steps(*Made("two_scales")), ElementsAre("hoist_factors(D)"));
  EXPECT_THAT(Steps(*Made("eighths")), ElementsAre("hoist_factors(Y)"));
  EXPECT_THAT(Steps(*Made("constant")), ElementsAre());
}

TEST(HoistFactorsTest, RoundedStagesKeepWhatIsLeft) {
  const auto made = WithHoistedFactors(*Made("rounded"), "Y");
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ((*made)->stages.size(), 3);
  EXPECT_EQ((*made)->stages[0].tensor->dtype, DType::kBFloat16);
  EXPECT_EQ(ToString((*made)->stages[0].body), "A[i, r]");
  EXPECT_EQ(ToString((*made)->stages[1].body), "float32(P[i, r]) * B[r, j]");
  EXPECT_EQ(ToString((*made)->stages[2].body), "Y.sum[i, j] / (abs(L[i]) + 1)");
  // float16 ends at 65504, and loses digits below 6e-5: a softmax's weights fit without their sum,
  // of which one is 1, and no other ones.
  EXPECT_TRUE(WithHoistedFactors(*Made("rounded_scores"), "Y").ok());
  for (const char* op : {"large_weights", "all_masked", "most_masked", "most_of_another",
                         "most_of_halves", "another_total", "multiplied", "large_elsewhere"}) {
    EXPECT_FALSE(WithHoistedFactors(*Made(op), "Y").ok()) << op;
  }
}

// What is divided by small numbers in turn may have no product of these in float32.
TEST(HoistFactorsTest, DivisorsDivideOneAfterAnother) {
  const auto made = WithHoistedFactors(*Made("two_norms"), "Y");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(ToString((*made)->stages.back().body),
            "Y.sum[i, j] / (sqrt(P[i]) + 0.5) / (sqrt(Q[j]) + 0.5)");
}

// Each stage reads the one before twice, so that there are 2^40 ways to the first one.
TEST(HoistFactorsTest, StagesAreLookedAtOnce) {
  std::string op = "op slow(m, n, k) { in A[m, k], B[k, n], L[m] T0[i: m, r: k] = exp(A[i, r]) ";
  for (int t = 1; t <= 40; ++t) {
    const std::string number = std::to_string(t), before = std::to_string(t - 1);
    op += "T" + number + "[i: m, r: k] = T" + before + "[i, r] + T" + before + "[i, r] ";
  }
  op += "P[i: m, r: k] = T40[i, r] / L[i] out Y[i: m, j: n] = sum(r: k) P[i, r] * B[r, j] }";
  const auto program = InstantiatedFrom(op, "slow", "m=3,n=4,k=5", DType::kFloat32);
  EXPECT_FALSE(WithHoistedFactors(*program, "Y").ok());
}

TEST(HoistFactorsTest, WhatOthersReadOrIsMaskedStays) {
  for (const char* op : {"divided", "reciprocal", "read_twice", "large_weights", "is_output",
                         "masked", "constant", "one_tensor", "normalised", "nothing_left"}) {
    const auto refused = WithHoistedFactors(*Made(op), "Y");
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("Y has no factor that a stage makes, whose own factors read a tensor"))
        << op;
  }
  EXPECT_THAT(std::string(WithHoistedFactors(*Made("maximum"), "Y").status().message()),
              HasSubstr("Y is no sum"));
}

}  // namespace
}  // namespace heddle::search_space::hoist_factors_test
