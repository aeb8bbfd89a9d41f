#include "tuner/search/explain.h"

#include <gtest/gtest.h>

#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"

namespace heddle::tuner {
namespace {

TEST(ExplainTest, ComparesFeaturesThatExist) {
  for (const ComparedFeature& row : ComparedFeatures()) {
    EXPECT_GE(FeatureIndex(row.feature), 0) << row.what;
  }
}

TEST(ExplainTest, TheLargestTermComesFirstAndIsCalledWhatItIsOnTheDevice) {
  Terms terms;
  terms[Term::kShared] = 3;
  terms[Term::kDram] = 5;
  for (const bool processor : {false, true}) {
    const auto largest = LargestTerms(terms, processor);
    ASSERT_GE(largest.size(), 2U);
    EXPECT_EQ(largest[0].first, 5);
    EXPECT_STREQ(largest[0].second, InfoOf(Term::kDram).On(processor).what);
    for (const auto& [us, what] : largest) EXPECT_NE(what, nullptr);
  }
  EXPECT_EQ(LargestTerms(terms, false)[1].first, 3);
}

TEST(ExplainTest, StepsThatDoNotApplyAreAnError) {
  const auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  const auto program = std::make_shared<const search_space::TensorProgram>(
      *op->Instantiate({{"m", 64}, {"n", 64}, {"k", 64}}, search_space::DType::kFloat32));
  const search_space::Target target = *search_space::FindTarget("h100");
  EXPECT_FALSE(Analyse(program, *search_space::ParseSteps("unroll(C, nothing)"), target).ok());
  const auto naive = Analyse(program, search_space::NaiveSteps(*program), target);
  ASSERT_TRUE(naive.ok()) << naive.status();
  EXPECT_EQ((*naive)["kernels"], static_cast<double>(program->stages.size()));
  EXPECT_GT((*naive)["analytic_us"], 0);
}

}  // namespace
}  // namespace heddle::tuner
