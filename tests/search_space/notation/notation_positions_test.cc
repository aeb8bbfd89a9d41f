// argmax and argmin: the two stages that they stand for, and their type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_space/notation/notation.h"
#include "tests/search_space/notation/notation_support.h"

namespace heddle::search_space {
namespace {

using ::testing::HasSubstr;

TEST(NotationPositions, AreTheTwoStagesThatFindThem) {
  const TensorProgram sugar = Instantiate(
      "op f(m, n) { in X[m, n] out A[i: m] = argmax(r: n) abs(X[i, r]) }", {{"m", 3}, {"n", 5}});
  const TensorProgram stages = Instantiate(
      "op f(m, n) { in X[m, n] A_max[i: m] = max(r: n) abs(X[i, r]) "
      "out A[i: m] = min(r: n) select(abs(X[i, r]) == A_max[i], r, n) }",
      {{"m", 3}, {"n", 5}});
  EXPECT_EQ(sugar.canonical_text, stages.canonical_text);
  EXPECT_EQ(sugar.hash, stages.hash);
  EXPECT_EQ(ParseWorkload(sugar.canonical_text)->canonical_text, sugar.canonical_text);
  // Of a stage that others read, in parentheses, by the other order.
  EXPECT_EQ(ParseOne("op f(n) { in X[n, n] A[i: n] = (argmin(r: n) X[i, r]) out Y[i: n] = -A[i] }")
                .text(),
            "op f(n) {\n"
            "  in X[n, n]\n"
            "  A_min[i: n] = min(r: n) X[i, r]\n"
            "  A[i: n] = min(r: n) select(X[i, r] == A_min[i], r, n)\n"
            "  out Y[i: n] = -A[i]\n"
            "}\n");
}

TEST(NotationPositions, MadeNamesAreNowhereInTheText) {
  // A parameter, an axis further below, another stage of that name, and one that is made.
  const Operator op = ParseOne(
      "op f(A_max) { in X[A_max, 8] out A[i: A_max] = argmax(r: 8) X[i, r] "
      "out B[A_max_: A_max] = A[A_max_] out A_[i: A_max] = argmax(r: 8) X[i, r] "
      "out A__max[i: A_max] = X[i, 0] }");
  for (const char* made : {"\n  A_max__[", "\n  A__max_["}) EXPECT_THAT(op.text(), HasSubstr(made));
  EXPECT_EQ(ParseOne(op.text()).text(), op.text());
  // Another operator's names are none of its.
  const auto two = ParseOperators(
      "op f(n) { in X[n, n] out A[i: n] = argmax(r: n) X[i, r] } "
      "op g(n) { in A_max[n] out Y[i: n] = A_max[i] }");
  EXPECT_THAT(two->front().text(), HasSubstr("\n  A_max["));
  // As long as names may be.
  const std::string name(64, 'a');
  const Operator longest =
      ParseOne(absl::StrCat("op f(n) { in X[n, n] out ", name, "[i: n] = argmax(r: n) X[i, r] }"));
  EXPECT_THAT(longest.text(), HasSubstr(name.substr(0, 60) + "_max["));
  EXPECT_EQ(ParseOne(longest.text()).text(), longest.text());
}

// As a value n / 2 would be 3.5.
TEST(NotationPositions, ExtentsStayIntegers) {
  const TensorProgram program =
      Instantiate("op f(n) { in X[n] out A[i: 1] = argmax(r: n / 2) X[r + i] }", {{"n", 7}});
  EXPECT_THAT(program.canonical_text, HasSubstr("let A_extent = n / 2\n"));
  EXPECT_EQ(ToString(program.stages[1].body), "select(X[r] == A_max[0], float32(r), 3)");
}

TEST(NotationPositions, WhatIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"argmax(r: n, q: n) A[r + q]", "1:43: 'argmax' has one axis, whose position it gives"},
      {"1 + argmax(r: n) A[r]", "the reduction 'argmax' inside an expression"},
      {"argmax(r: n) argmin(q: n) A[q]", "the reduction 'argmin' inside an expression"},
      {"argmax(A[i])", "'argmax' is a reduction: write argmax(r: extent)"},
      {"argmax(r: n) A[i]", "1:37: reduction axis 'r' is never used"},
      {"argmax(r: n) Z[r]", "unknown tensor 'Z'"},
      {"argmax(i: n) A[i]", "'i' is already an axis"},
      {"argmax(r: n) r < 3", "expected a value, found the condition"},
      {"argmax(r: n) Y_max[r]", "unknown tensor 'Y_max'"},
  };
  for (const auto& [e, message] : cases) {
    EXPECT_THAT(ParseError(absl::StrCat("op f(n) {in A[n] out Y[i: n]=", e, " }")),
                HasSubstr(message))
        << e;
  }
  EXPECT_THAT(ParseError("op f(n) { let argmin = n }"), HasSubstr("is a word of the notation"));
}

TEST(NotationPositions, AreOfTheBestInItsOwnType) {
  const TensorProgram halves =
      Instantiate("op f(m, n) { in X[m, n] out A[i: m]: float16 = argmax(r: n) X[i, r] * 0.1 }",
                  {{"m", 3}, {"n", 7}});
  EXPECT_EQ(halves.stages[0].tensor->dtype, DType::kFloat32) << "rounded it is equal to none";
  EXPECT_EQ(halves.stages[1].tensor->dtype, DType::kFloat16);
  const TensorProgram wide =
      Instantiate("op f(m, n) { in X[m, n] out A[i: m]: float64 = argmax(r: n) X[i, r] * 0.1 }",
                  {{"m", 3}, {"n", 7}});
  EXPECT_EQ(wide.stages[0].tensor->dtype, DType::kFloat64);
}

TEST(NotationPositions, AreExactInTheirType) {
  const Operator op = ParseOne("op f(n) { in X[1, n] out A[i: 1] = argmax(r: n) X[i, r] }");
  const std::pair<DType, int> digits[] = {
      {DType::kFloat16, 11}, {DType::kBFloat16, 8}, {DType::kFloat32, 24}};
  for (const auto& [type, bits] : digits) {
    EXPECT_TRUE(op.Instantiate({{"n", 1 << bits}}, type).ok());
    const auto refused = op.Instantiate({{"n", (1 << bits) + 1}}, type);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr(absl::StrCat("whole numbers up to 2^", bits, " only")));
  }
  EXPECT_TRUE(op.Instantiate({{"n", (1 << 24) + 1}}, DType::kFloat64).ok());
  // Of float16 only what is stored is rounded: what another stage reads is float32.
  EXPECT_TRUE(ParseOne("op f(n) { in X[1, n] A[i: 1] = argmax(r: n) X[i, r] "
                       "out Y[i: 1] = select(A[i] < 3, 1, 0) }")
                  .Instantiate({{"n", 4096}}, DType::kFloat16)
                  .ok());
}

}  // namespace
}  // namespace heddle::search_space
