// Sums of prefixes whose terms decay, as cumulative sums: which are found, what a program becomes,
// and what is refused.
#include "search_space/schedule/rewrites/algebra/separate_decay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/form.h"
#include "search_space/sketch/programs/least_flops.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::separate_decay_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op average(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = sum(r: n) select(r <= j, X[i, r] * pow(0.9, j - r), 0)
}
op returns(m, n) {
  in X[m, n], V[m, n]
  A[i: m, j: n] = sum(r: n) select(r > j && r != 7, X[i, r] * pow(0.8, 2 * (r - j)), 0)
  out Y[i: m, j: n] = A[i, j] + V[i, j]
}
op weights_of_a_stage(m, n) {
  in X[m, n]
  D[r: n, j: n] = select(r <= j, pow(0.9, j - r), 0)
  out Y[i: m, j: n] = sum(r: n) X[i, r] * X[i, r] * D[r, j]
}
op exponential(m, n) {
  in X[n, m]
  out Y[j: n, i: m] = sum(r: n) select(r < j, X[r, i] * exp(-0.25 * (j - r - 1)), 0)
}
op growing(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = sum(r: n) select(r <= j, X[i, r] * pow(1.1, j - r), 0)
}
op several(m, n, k) {
  in X[m, n, k]
  out Y[i: m, j: n] = sum(r: n, t: k) select(r <= j, X[i, r, t] * pow(0.9, j - r), 0)
}
op maximum(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = max(r: n) select(r <= j, X[i, r] * pow(0.9, j - r), 0)
}
op elsewhere(m, n) {
  in X[m, n], B[n]
  out Y[i: m, j: n] = sum(r: n) select(r <= j, X[i, r] * B[j] * pow(0.9, j - r), 0)
}
op other_distance(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = sum(r: n) select(r <= j, X[i, r] * pow(0.9, j + r), 0)
}
op shifted(m, n, d) {
  in X[m, n]
  out Y[i: m, j: n] = sum(r: n) select(r <= j, X[i, r] * pow(0.5, j - r - d), 0)
}
op unmasked(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = sum(r: n) X[i, r] * pow(0.9, j - r)
}
op narrow_weights(m, n) {
  in X[m, n]
  D[r: n, j: n]: bfloat16 = select(r <= j, pow(0.9, j - r), 0)
  out Y[i: m, j: n] = sum(r: n) X[i, r] * D[r, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kFloat32) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

TEST(DecayTest, TermsDecayToTheMiddleAndOn) {
  const Form form = FormOf(Made("average", "m=2,n=8"));
  ASSERT_EQ(form.steps.size(), 1);
  EXPECT_EQ(ToString(form.steps[0]), "separate_decay(Y)");
  ASSERT_EQ(form.program->stages.size(), 2);
  EXPECT_EQ(ToString(form.program->stages[0].body),
            "select(r < j + 1, X[i, r] * pow(0.89999997615814209, float32(r * -1 + 4)), 0)");
  EXPECT_EQ(ToString(form.program->stages[1].body),
            "Y.scan[i, j] * pow(0.89999997615814209, float32(j - 4))");
  EXPECT_TRUE(form.program->stages[1].is_output);
}

TEST(DecayTest, ComputesTheSame) {
  for (const auto& [op, shape] : {std::pair("average", "m=3,n=50"),
                                  {"returns", "m=2,n=40"},
                                  {"weights_of_a_stage", "m=3,n=33"},
                                  {"exponential", "m=5,n=60"},
                                  {"growing", "m=2,n=64"},
                                  {"several", "m=2,n=20,k=3"}}) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
      const auto program = Made(op, shape, type);
      const Form form = FormOf(program);
      const bool is_narrow = type == DType::kBFloat16;
      // A stage of numbers that are not the sum's type is rounded.
      if (is_narrow && op == std::string("weights_of_a_stage")) continue;
      ASSERT_FALSE(form.steps.empty()) << op;
      TensorValues expected = IntegerInputs(*program), got = expected;
      EvaluateAll(*program, expected);
      EvaluateAll(*form.program, got);
      for (size_t i = 0; i < expected.at("Y").size(); ++i) {
        const double value = expected.at("Y")[i], most = is_narrow ? 0x1p-8 : 1e-5;
        EXPECT_NEAR(got.at("Y")[i], value, most * (std::abs(value) + 1)) << op << " " << i;
      }
    }
  }
}

TEST(DecayTest, AreScansOfFewOperations) {
  const auto program = Made("average", "m=4,n=512");
  EXPECT_LT(LeastFlops(*program), program->Flops() / 50);
}

TEST(DecayTest, WhatIsNoDecayOfPrefixesIsRefused) {
  for (const char* op : {"maximum", "elsewhere", "other_distance", "unmasked", "narrow_weights"}) {
    const auto refused = WithSeparateDecay(*Made(op, "m=2,n=16"), "Y");
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("Y is no sum of select")) << op;
  }
  // 2^100 is no weight of the sum's terms alone, but of their place on the way.
  EXPECT_TRUE(WithSeparateDecay(*Made("shifted", "m=2,n=16,d=3"), "Y").ok());
  EXPECT_FALSE(WithSeparateDecay(*Made("shifted", "m=2,n=16,d=100"), "Y").ok());
  // Weights from 0.9^-300 to 0.9^300.
  EXPECT_FALSE(WithSeparateDecay(*Made("average", "m=2,n=600"), "Y").ok());
  EXPECT_TRUE(WithSeparateDecay(*Made("average", "m=2,n=560"), "Y").ok());
}

}  // namespace
}  // namespace heddle::search_space::separate_decay_test
