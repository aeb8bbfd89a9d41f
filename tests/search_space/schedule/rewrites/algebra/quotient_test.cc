// Quotients at fixed places of an axis, as a stage: which are found, what a program becomes, and
// what is refused.
#include "search_space/schedule/rewrites/algebra/quotient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "search_space/sketch/programs/form.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::quotient_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op difference(s, d) {
  in E[2, s, s], V[s, d], G[s]
  L[c: 2, i: s] = sum(r: s) E[c, i, r] * E[c, i, r] + 1
  O[c: 2, i: s, x: d] = sum(r: s) E[c, i, r] * V[r, x]
  out Y[i: s, x: d] = O[0, i, x] / L[0, i] - G[i] * O[1, i, x] / L[1, i] * 2
}
op other_reads(s, d) {
  in E[2, s, s], V[s, d], D[2, s]
  L[c: 2, i: s] = sum(r: s) E[c, i, r]
  A[c: 2, i: s, x: d] = sum(r: s) E[c, i, r] * V[r, x]
  B[c: 2, i: s, x: d] = sum(r: s) E[c, i, r] + V[r, x]
  C[c: 2, i: s, x: d] = sum(r: s) max(E[c, i, r], V[r, x])
  F[c: 2, i: s, x: d] = sum(r: s) min(E[c, i, r], V[r, x])
  M[i: s] = max(x: d) F[0, i, x] / L[0, i]
  out Y[i: s, x: d] = A[0, i, x] / L[0, i] - A[1, i, x] / L[0, i]
  out Z[i: s, x: d] = B[0, i, x] / L[0, i] - B[1, i, x]
  out W[c: 2, i: s, x: d] = C[c, i, x] / L[c, i]
  out X[i: s, x: d] = A[0, i, x] / D[0, i] + F[1, i, x] / L[1, i] + M[i]
}
op shorter_divisor(s) {
  in E[3, s, s], F[2, s, s]
  L[c: 2, i: s] = sum(r: s) F[c, i, r]
  K[c: 3, i: s] = sum(r: s) E[c, i, r] * 2
  O[c: 3, i: s] = max(r: s) E[c, i, r]
  P[c: 3, i: s] = sum(r: s) E[c, i, r]
  out Y[i: s] = O[0, i] / L[0, i] - O[1, i] / L[1, i] + O[2, i]
  out Z[i: s] = P[0, i] / K[0, i] - P[1, i] / K[1, i]
}
)";

TensorProgram Made(const std::string& op, const std::string& shape) {
  return *InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

TEST(QuotientTest, DividesEachElementOnce) {
  const TensorProgram program = Made("difference", "s=4,d=3");
  const TensorProgram divided = **WithQuotient(program, "O");
  ASSERT_EQ(divided.stages.size(), 4);
  EXPECT_EQ(divided.stages[2].name(), "O.quotient");
  EXPECT_EQ(ToString(divided.stages[2].body), "O[c, i, x] / L[c, i]");
  EXPECT_EQ(ToString(divided.stages[3].body),
            "O.quotient[0, i, x] - G[i] * O.quotient[1, i, x] * 2");
  TensorValues expected = IntegerInputs(program), got = expected;
  EvaluateAll(program, expected);
  EvaluateAll(divided, got);
  for (size_t i = 0; i < expected.at("Y").size(); ++i) {
    EXPECT_NEAR(got.at("Y")[i], expected.at("Y")[i], 1e-5);
  }
}

TEST(QuotientTest, OtherReadsAreRefused) {
  const TensorProgram program = Made("other_reads", "s=4,d=3");
  const auto refusal = [&](const std::string& stage) {
    return std::string(WithQuotient(program, stage).status().message());
  };
  EXPECT_THAT(refusal("V"), HasSubstr("V is no stage of other_reads"));
  EXPECT_THAT(refusal("Y"), HasSubstr("Y is no reduction that only others read"));
  // By two elements at one place, by an input, not at all, in a reduction; at all places.
  for (const std::string stage : {"A", "B", "F"}) {
    EXPECT_THAT(refusal(stage),
                HasSubstr("is read where it is not divided by the elements of one reduction"))
        << stage;
  }
  const TensorProgram shorter = Made("shorter_divisor", "s=4");
  EXPECT_THAT(std::string(WithQuotient(shorter, "O").status().message()),
              HasSubstr("is read where it is not divided by the elements of one reduction"));
  EXPECT_THAT(std::string(WithQuotient(shorter, "P").status().message()),
              HasSubstr("is not read at all of several fixed places"));
  EXPECT_THAT(refusal("C"), HasSubstr("C is not read at all of several fixed places"));
}

TEST(QuotientTest, SchedulesBeginWithIt) {
  const auto program = std::make_shared<const TensorProgram>(Made("difference", "s=64,d=64"));
  const Form form = FormOf(program);
  ASSERT_EQ(form.steps.size(), 1);
  EXPECT_EQ(ToString(form.steps[0]), "quotient(O)");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  EXPECT_EQ(ToString(space.Steps(space.Default())->at(0)), "quotient(O)");
}

}  // namespace
}  // namespace heddle::search_space::quotient_test
