#include "measure/judge/defined_elements.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "search_space/notation/notation.h"

namespace heddle::measure::defined_elements_test {
namespace {

using search_space::SamplePoint;
using search_space::TensorProgram;

// Element 5 is chosen by a comparison of two sums that rounding may turn: either its square or
// three times that is right.
class DefinedElementsTest : public testing::Test {
 protected:
  void UseElements(const std::string& shape) {
    const auto ops = search_space::ParseOperators(
        "op chosen(n) { in X[n, 8]  S[i: n] = sum(r: 8) exp(X[i, r])  "
        "T[i: n] = S[i] * select(i == 5, 1.0000005, 2)  "
        "out Y[i: n] = select(S[i] < T[i], S[i] * S[i], S[i] * S[i] * 3) }");
    ASSERT_TRUE(ops.ok()) << ops.status();
    program_ =
        *ops->front().Instantiate(*search_space::ParseShape(shape), search_space::DType::kFloat32);
    inputs_.emplace(program_, /*seed=*/1);
    const std::optional<Sampled> sampled = inputs_->Sample(InputKind::kUniform);
    ASSERT_TRUE(sampled.has_value());
    defined_.emplace(program_, *inputs_, *sampled, /*threads=*/1);
    for (int64_t i = 0; i < 16; ++i) elements_.push_back(i);
    points_ = search_space::EvaluateElements(program_, 0, elements_, Input(), 1 << 20, 1);
    ASSERT_EQ(points_.size(), elements_.size());
  }
  std::function<double(int, int64_t)> Input() const {
    return [this](int tensor, int64_t offset) {
      return inputs_->At(InputKind::kUniform, tensor, offset);
    };
  }

  // Is `factor` times what the definition says allowed of one element?
  bool Allows(int64_t element, float factor) {
    std::vector<float> got(static_cast<size_t>(program_.stages.back().tensor->elements));
    got[element] = static_cast<float>(points_[element].value) * factor;
    return defined_->Allow(0, {.elements = 1, .worst = element, .offsets = {element}}, got.data());
  }

  TensorProgram program_;
  std::optional<Inputs> inputs_;
  std::optional<DefinedElements> defined_;
  std::vector<int64_t> elements_;
  std::vector<SamplePoint> points_;  // of the elements
};

TEST_F(DefinedElementsTest, AllowWhatTheDefinitionSaysAlone) {
  UseElements("n=1000");
  EXPECT_TRUE(Allows(6, 1));
  EXPECT_TRUE(Allows(6, 1.0000001F));
  EXPECT_FALSE(Allows(6, 1.001F));
  EXPECT_FALSE(Allows(6, 3));
}

TEST_F(DefinedElementsTest, AllowBothSidesOfAnUncertainDecision) {
  UseElements("n=1000");
  EXPECT_TRUE(Allows(5, 1));
  EXPECT_TRUE(Allows(5, 3));
  EXPECT_FALSE(Allows(5, 2));
}

TEST_F(DefinedElementsTest, AllowFewTurnedDecisionsOnly) {
  UseElements("n=200");
  EXPECT_TRUE(Allows(5, 1));
  EXPECT_FALSE(Allows(5, 3));
}

TEST_F(DefinedElementsTest, AllowNothingUnlessAllAreNamed) {
  UseElements("n=1000");
  const std::vector<float> got(1000, static_cast<float>(points_[6].value));
  EXPECT_TRUE(defined_->Allow(0, {.elements = 1, .offsets = {6}}, got.data()));
  EXPECT_FALSE(defined_->Allow(0, {.elements = 2, .offsets = {6}}, got.data()));
}

TEST_F(DefinedElementsTest, AllowAnUncertainSampleTurned) {
  UseElements("n=1000");
  ASSERT_TRUE(points_[5].uncertain);
  const auto turned = static_cast<float>(points_[5].value) * 3;
  EXPECT_TRUE(defined_->AllowTurned(points_[5], turned));
  EXPECT_FALSE(defined_->AllowTurned(points_[5], turned * 3));
  EXPECT_FALSE(defined_->AllowTurned(points_[6], static_cast<float>(points_[6].value)));
}

// Of element 5 of these nothing but the rounding errors of numbers as large as the others are left.
TEST(CancelledElementsTest, MayBeWhatRoundingLeavesOfThem) {
  const auto ops = search_space::ParseOperators(
      "op left(n) { in X[n, 8]  S[i: n] = sum(r: 8) exp(X[i, r])  "
      "out Y[i: n] = S[i] - select(i == 5, S[i] * 0.9999999, 0) }");
  ASSERT_TRUE(ops.ok()) << ops.status();
  const TensorProgram program =
      *ops->front().Instantiate({{"n", 1000}}, search_space::DType::kFloat32);
  const Inputs inputs(program, /*seed=*/1);
  std::optional<Sampled> sampled = inputs.Sample(InputKind::kUniform);
  ASSERT_TRUE(sampled.has_value());
  // As of samples among which there is no such element, of inputs with peaks.
  sampled->allowed[0] = {.absolute = 1e-12, .slack = 0};
  DefinedElements defined(program, inputs, *sampled, /*threads=*/1);
  std::vector<float> got(1000);
  const auto allows = [&](int64_t element, float value) {
    got[static_cast<size_t>(element)] = value;
    return defined.Allow(0, {.elements = 1, .worst = element, .offsets = {element}}, got.data());
  };
  EXPECT_TRUE(allows(5, 0));
  EXPECT_TRUE(allows(5, 1e-5F));
  EXPECT_FALSE(allows(5, 1e-2F));
  EXPECT_FALSE(allows(6, 0));
}

// A mask's number explains nothing, in the element or in others.
TEST(CancelledElementsTest, MayNotBeWhateverAMaskExplains) {
  const auto ops = search_space::ParseOperators(
      "op masked(n) { in X[n, 8]  S[i: n] = sum(r: 8) exp(X[i, r])  "
      "out Y[j: 2, i: n] = select(j == 0, -1000000000.0, "
      "S[i] + select(i == 5, 1000000000.0, 0) - select(i == 5, 1000000000.0, 0)) }");
  ASSERT_TRUE(ops.ok()) << ops.status();
  const TensorProgram program =
      *ops->front().Instantiate({{"n", 1000}}, search_space::DType::kFloat32);
  const Inputs inputs(program, /*seed=*/1);
  std::optional<Sampled> sampled = inputs.Sample(InputKind::kUniform);
  ASSERT_TRUE(sampled.has_value());
  sampled->allowed[0] = {.absolute = 1e-5, .slack = 0};
  DefinedElements defined(program, inputs, *sampled, /*threads=*/1);
  std::vector<float> got(2000);
  for (const float value : {0.0F, 100.0F, 1000.0F}) {
    got[1005] = value;
    EXPECT_FALSE(defined.Allow(0, {.elements = 1, .worst = 1005, .offsets = {1005}}, got.data()));
  }
}

}  // namespace
}  // namespace heddle::measure::defined_elements_test
