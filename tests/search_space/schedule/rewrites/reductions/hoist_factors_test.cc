// Factors that all terms of a sum have, multiplied behind it: which are found, what a program
// becomes, and what is refused.
#include "search_space/schedule/rewrites/reductions/hoist_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "search_space/sketch/algorithms.h"
#include "search_space/sketch/form.h"
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

TEST(HoistFactorsTest, AreMultipliedBehindTheSum) {
  const auto made = WithHoistedFactors(*Made("divided"), "Y");
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ((*made)->stages.size(), 2);
  EXPECT_EQ(ToString((*made)->stages[0].body), "A[i, r] * B[r, j]");
  EXPECT_EQ(ToString((*made)->stages[1].body), "Y.sum[i, j] / (abs(L[i]) + 1)");
  EXPECT_TRUE((*made)->stages[1].is_output);
  EXPECT_FALSE((*made)->stages[0].is_output);
}

TEST(HoistFactorsTest, StagesThatNobodyElseReadsAreTakenApart) {
  const auto softmax = WithHoistedFactors(*Made("softmax_of_a_stage"), "Y");
  ASSERT_TRUE(softmax.ok()) << softmax.status();
  EXPECT_EQ((*softmax)->stages.size(), 3);  // L, Y.sum, Y
  EXPECT_EQ(ToString((*softmax)->stages.back().body), "Y.sum[i, j] / L[i]");

  const auto scales = WithHoistedFactors(*Made("two_scales"), "D");
  ASSERT_TRUE(scales.ok()) << scales.status();
  ASSERT_EQ((*scales)->stages.size(), 3);
  EXPECT_EQ(ToString((*scales)->stages[0].body), "A[i, r] * (B[r, j] * 0.5)");
  EXPECT_EQ(ToString((*scales)->stages[1].body), "D.sum[i, j] * (S[i] * T[j])");
}

TEST(HoistFactorsTest, ComputesTheSame) {
  for (const char* op :
       {"divided", "softmax_of_a_stage", "two_scales", "reciprocal", "softmax_of_scores"}) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
      const auto program = Made(op, type);
      const Form form = FormOf(program);
      ASSERT_FALSE(form.steps.empty()) << op;
      TensorValues expected = IntegerInputs(*program), got = expected;
      EvaluateAll(*program, expected);
      EvaluateAll(*form.program, got);
      for (size_t i = 0; i < expected.at("Y").size(); ++i) {
        const double value = expected.at("Y")[i], most = type == DType::kFloat32 ? 1e-5 : 0x1p-8;
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
  EXPECT_THAT(Steps(*Made("divided")), ElementsAre("hoist_factors(Y)"));
  EXPECT_THAT(Steps(*Made("two_scales")), ElementsAre("hoist_factors(D)"));
  EXPECT_THAT(Steps(*Made("constant")), ElementsAre());
}

TEST(HoistFactorsTest, WhatOthersReadIsRoundedOrIsMaskedStays) {
  for (const char* op : {"read_twice", "rounded", "is_output", "masked", "constant", "one_tensor",
                         "normalised", "nothing_left"}) {
    const auto refused = WithHoistedFactors(*Made(op), "Y");
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("Y has no factor that reads a tensor and mentions no reduced axis"))
        << op;
  }
  EXPECT_THAT(std::string(WithHoistedFactors(*Made("maximum"), "Y").status().message()),
              HasSubstr("Y is no sum"));
}

}  // namespace
}  // namespace heddle::search_space::hoist_factors_test
