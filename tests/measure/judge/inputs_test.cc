#include "measure/judge/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "search_space/ir/expr/float_format.h"
#include "search_space/notation/notation.h"

namespace heddle::measure {
namespace {

using search_space::DType;
using search_space::TensorProgram;
using testing::ElementsAre;

TensorProgram ProgramOf(const std::string& text, DType type = DType::kFloat32) {
  const auto operators = search_space::ParseOperators("op f(n) { " + text + " }");
  EXPECT_TRUE(operators.ok()) << operators.status();
  return *operators->front().Instantiate({{"n", 100}}, type);
}

std::vector<InputKind> KindsOf(const TensorProgram& program) {
  std::vector<InputKind> kinds;
  const auto chosen = Inputs(program, 1).Choose();
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  if (chosen.ok()) {
    for (const Sampled& sampled : *chosen) kinds.push_back(sampled.kind);
  }
  return kinds;
}

TEST(InputsTest, TheFirstKindShowsALostTermAndTheLastIsTimed) {
  const std::string product = "in A[n], B[n] out C[i: 1] = sum(r: n) A[r] * B[r]";
  EXPECT_THAT(KindsOf(ProgramOf(product)), ElementsAre(InputKind::kIntegers, InputKind::kUniform));
  EXPECT_THAT(KindsOf(ProgramOf(product, DType::kFloat16)),
              ElementsAre(InputKind::kIntegers, InputKind::kNormal));
  EXPECT_THAT(KindsOf(ProgramOf("in A[n] out C[i: 1] = sum(r: n) exp(A[r])")),
              ElementsAre(InputKind::kPeaks, InputKind::kUniform));
  // No sum, and no exact result.
  EXPECT_THAT(KindsOf(ProgramOf("in A[n] out C[i: n] = exp(A[i])")),
              ElementsAre(InputKind::kUniform));
  EXPECT_THAT(KindsOf(ProgramOf("in A[n, n] out C[i: n] = max(r: n) A[i, r]")),
              ElementsAre(InputKind::kExtremes, InputKind::kUniform));
  EXPECT_THAT(KindsOf(ProgramOf("in A[n, n] out C[i: n] = prod(r: n) A[i, r]")),
              ElementsAre(InputKind::kPowers, InputKind::kUniform));
  // Not finite on negative numbers.
  EXPECT_THAT(KindsOf(ProgramOf("in A[n] out C[i: n] = log(A[i])")),
              ElementsAre(InputKind::kPositive));
}

TEST(InputsTest, IntegersThatAreTooLargeToBeExactAreNotTaken) {
  const std::string square = "Q[i: n] = (A[i] * A[i]) * (A[i] * A[i]) ";
  const std::string large = "in A[n] " + square +
                            "R[i: n] = (Q[i] * Q[i]) * (Q[i] * Q[i]) "
                            "out C[i: 1] = sum(r: n) R[r]";
  EXPECT_THAT(KindsOf(ProgramOf(large)), ElementsAre(InputKind::kPeaks, InputKind::kUniform));
}

TEST(InputsTest, WhatIsNeverFiniteIsRefused) {
  const TensorProgram program = ProgramOf("in A[n] out C[i: n] = log(0 - A[i] * A[i] - 1)");
  const absl::Status refused = Inputs(program, 1).Choose().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), testing::HasSubstr("not finite on random inputs"));
}

// Products of so many factors are of such different sizes that what is allowed for the largest
// would let pass a kernel that writes nothing but zeros.
TEST(InputsTest, WhereNoneCanTellTheProgramIsRefused) {
  const TensorProgram program = ProgramOf("in A[n, n] out C[i: n] = prod(r: n) exp(A[i, r] * 60)");
  const absl::Status refused = Inputs(program, 1).Choose().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(refused.message(), testing::HasSubstr("cannot be checked"));
}

// What a softmax makes of long sums of products is one element of each row: the others are less
// than what is allowed for that one.
TEST(InputsTest, SmallInputsTellWhereOthersSpreadTooWide) {
  for (const char* text :
       {"in X[n, 1024], W[n, 1024] L[i: n, j: n] = sum(r: 1024) X[i, r] * W[j, r] "
        "M[i: n] = max(j: n) L[i, j] S[i: n] = sum(j: n) exp(L[i, j] - M[i]) "
        "out Y[i: n, j: n] = exp(L[i, j] - M[i]) / S[i]",
        "in A[n, n] out C[i: n] = prod(r: n) exp(A[i, r] * 3.0)"}) {
    const TensorProgram program = ProgramOf(text);
    const auto chosen = Inputs(program, 1).Choose();
    ASSERT_TRUE(chosen.ok()) << chosen.status() << ": " << text;
    ASSERT_EQ(chosen->size(), 2u) << text;
    EXPECT_EQ(chosen->front().kind, InputKind::kSmall) << text;
    EXPECT_GT(chosen->front().told, 0.3) << text;
    EXPECT_LT(chosen->back().told, 0.1) << text;
    EXPECT_EQ(chosen->back().kind, InputKind::kUniform) << text;
  }
}

TEST(InputsTest, ElementsAreOfTheirTensorsType) {
  const TensorProgram program = ProgramOf("in A[n] out C[i: n] = A[i] + 1", DType::kBFloat16);
  const Inputs inputs(program, 7), same(program, 7), others(program, 8);
  int differ = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const float value = inputs.At(InputKind::kNormal, 0, i);
    EXPECT_EQ(value, search_space::RoundTo(DType::kBFloat16, value)) << i;
    EXPECT_EQ(value, same.At(InputKind::kNormal, 0, i)) << i;
    differ += value != others.At(InputKind::kNormal, 0, i);
  }
  EXPECT_GT(differ, 50);
}

}  // namespace
}  // namespace heddle::measure
