// What the notation refuses, and what its messages say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/notation_limits.h"
#include "tests/search_space/notation/notation_support.h"

namespace heddle::search_space {
namespace {

using ::testing::HasSubstr;

TEST(NotationErrors, SyntaxNamesPlaceAndExpectation) {
  const std::pair<const char*, const char*> cases[] = {
      {"",
       "1:1: expected 'op' (an operator: op name(parameters) { ... }), found the end of the "
       "text"},
      {"opp f() {}", "1:1: expected 'op'"},
      {"op f\n  m) {}", "2:3: expected '(' before the parameters, found 'm'"},
      {"op f(m {", "1:8: expected ')' or ',' after a parameter, found '{'"},
      {"op f(m = x) {}", "1:10: expected an integer as the parameter's default, found 'x'"},
      {"op f(m) { in A }", "1:16: expected '[' before the input's extents, found '}'"},
      {"op f(m) { in A[m) }", "1:17: expected ']' or ',' after an extent, found ')'"},
      {"op f(m) { out Y[i m] = 1 }", "1:19: expected ':' and an extent after the axis name"},
      {"op f(m) { out Y[i: m] 1 }", "1:23: expected '=' before the stage's definition, found '1'"},
      {"op f(m) { in A[m]: int8 out Y[i: m] = A[i] }",
       "1:20: expected the tensor's data type (float16, bfloat16, tf32, float32, float64), or "
       "index(extent) for an input that holds indices, found 'int8'"},
      {"op f(m) { in A[m] out Y[i: m]: half = A[i] }",
       "1:32: expected the tensor's data type (float16, bfloat16, tf32, float32, float64), found "
       "'half'"},
      {"op f(m) { in A[m] out Y[i: m]: index(m) = A[i] }",
       "1:32: stages hold values; indices are read from inputs alone"},
      {"op f(m) { out Y[i: m] = }", "1:25: expected an expression, found '}'"},
      {"op f(m) { out Y[i: m] = (1 + 2 }", "1:32: expected ')' after the expression"},
      {"op f(m) { out Y[i: m] = 1", "found the end of the text"},
      {"op f(m) { 3 }", "1:11: expected let, in, out, a stage or '}', found '3'"},
      {"op f(m) { let max = 3 }", "but 'max' is a word of the notation"},
      {"op f(m) { out Y[i: m] = 1e }", "1:25: expected digits after the exponent's 'e'"},
      {"op f(m) { out Y[i: m] = 12ab }", "1:25: expected a number or a name, found '12a...'"},
      {"op f(m) { out Y[i: m] = 1e999 }", "write inf for infinity"},
      {"op f(m) { out Y[i: m] = 9223372036854775808 }", "does not fit a 64-bit integer"},
      {"op f(m) { out Y[i: m] = $ }", "1:25: unexpected character '$'"},
      {"op f(m) { out Y[i: m] = é }", "1:25: unexpected character 'é'"},
      {"op f(m) { in A[m] out Y[i: m] = A[i] } op f(m) { in A[m] out Y[i: m] = A[i] }",
       "1:43: operator 'f' is already defined at 1:4"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(ParseError(text), HasSubstr(message));
}

TEST(NotationErrors, BinaryText) {
  EXPECT_THAT(ParseError(std::string("op f\0(m)", 8)),
              HasSubstr("1:5: byte 0x00: this is not text"));
  EXPECT_THAT(ParseError("\x7f"
                         "ELF"),
              HasSubstr("byte 0x7F: this is not text"));
  EXPECT_THAT(ParseError("# \xff\xfe"), HasSubstr("1:3: byte 0xFF: this is not text"));
  EXPECT_THAT(ParseError("# \xc3"), HasSubstr("byte 0xC3"));
  EXPECT_EQ(ParseError("\xEF\xBB\xBF"
                       "op f(m) { out Y[i: m] = 1 }"),
            "(accepted)");
}

TEST(NotationErrors, Names) {
  const std::pair<const char*, const char*> cases[] = {
      {"op f(m, m) { out Y[i: m] = 1 }", "1:9: 'm' is already a parameter (1:6)"},
      {"op f(m) { in m[m] out Y[i: m] = 1 }", "'m' is already a parameter"},
      {"op f(m) { in A[m] out A[i: m] = A[i] }", "1:23: 'A' is already an input (1:14)"},
      {"op f(m) { in A[m] out Y[m: m] = A[m] }", "1:25: 'm' is already a parameter"},
      {"op f(m) { in A[m] out Y[i: m] = sum(i: m) A[i] }", "'i' is already an axis"},
      {"op f(m) { in A[m] out Y[Y: m] = A[Y] }", "axis 'Y' has the name of its stage"},
      {"op f(m) { in A[m] out Y[i: m] = Y[i] + A[i] }", "'Y' is read in its own definition"},
      {"op f(m) { in A[m] T[i: m] = Z[i] + A[i] out Z[i: m] = T[i] }",
       "1:29: 'Z' is used before its definition at 1:45"},
      {"op f(m) { in Input[m] out Y[i: m] = input[i] }",
       "1:37: unknown tensor 'input'; did you mean 'Input'?"},
      {"op f(width) { in A[widht] out Y[i: width] = A[i] }",
       "unknown name 'widht'; did you mean 'width'?"},
      {"op f(m) { in A[m] out Y[i: m] = A[j] }", "unknown name 'j'"},
      {"op f(m) { in A[m] out Y[i: m] = A }", "'A' is a tensor; read an element of it: A[...]"},
      {"op f(m) { in A[m] out Y[i: m] = A[i] + m[i] }", "'m' is a parameter, not a tensor"},
      {"op f(m) { in A[m, m] out Y[i: m] = A[i] }",
       "'A' has 2 dimensions, but 1 indices are given"},
      {"op f(m) { in A[m] out Y[i: m] = esp(A[i]) }",
       "unknown function 'esp'; did you mean 'exp'?"},
      {"op f(m) { in A[m] out Y[i: m] = clamp(A[i], 0, 1) }",
       "'clamp': write min(max(x, least), greatest)"},
      {"op f(m) { in A[m, m] out Y[i: m] = mean(r: m) A[i, r] }",
       "'mean': a mean is a sum that is divided where it is read"},
      {"op f(m) { in A[m] out Y[i: m] = sin(A[i]) }", "'sin': there is no such function"},
      {"op f(m) { in A[m]: bf16 out Y[i: m] = A[i] }", "found 'bf16'; did you mean 'bfloat16'?"},
      {"op f(m) { in A[m] out Y[i: m]: half = A[i] }", "found 'half'; did you mean 'float16'?"},
      {"op f(m) { in A[m] out Y[i: m] = exp(A[i], 1) }", "'exp' takes 1 argument, found 2"},
      {"op f(m) { in A[m] out Y[i: m] = max(A[i]) }", "'max' takes 2 arguments, found 1"},
      {"op f(m) { in A[m] out Y[i: m] = sum(A[i]) }",
       "'sum' is a reduction: write sum(r: extent) and what to combine"},
      {"op f(m) { in A[m] out Y[i: m] = A[i] T[i: m] = 1 }",
       "1:38: stage 'T' is never read and is not an output"},
      {"op f(m) { in A[m], B[m] out Y[i: m] = A[i] }", "1:20: input 'B' is never read"},
      {"op f(m, q) { in A[m] out Y[i: m] = A[i] }", "1:9: 'q' is never used"},
      {"op f(m) { let q = m in A[m] out Y[i: m] = A[i] }", "1:15: 'q' is never used"},
      {"op f(m) { in A[m] out Y[i: m] = sum(r: m) A[i] }",
       "1:37: reduction axis 'r' is never used"},
      {"op f(m) { in A[m] Y[i: m] = A[i] }", "operator 'f' has no output"},
      {"op f() { }", "operator 'f' has no output"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(ParseError(text), HasSubstr(message));
}

TEST(NotationErrors, KindsOfExpression) {
  const std::pair<const char*, const char*> cases[] = {
      {"1 + sum(r: n) A[r]",
       "the reduction 'sum' inside an expression; make it a stage of its own"},
      {"exp(max(r: n) A[r])", "the reduction 'max' inside an expression"},
      {"(sum(r: n) A[r]) * 2", "the reduction 'sum' inside an expression"},
      {"sum(r: n) sum(q: n) A[r]", "the reduction 'sum' inside an expression"},
      {"A[i] % 2", "'%' works on indices only, not on values"},
      {"i % 2", "'%' works on indices only"},
      {"i < 3", "expected a value, found the condition 'i < 3 + 0 * A[i]"},
      {"select(A[i], 1, 2)", "expected a condition (a comparison, &&, || or !), found 'A[i]'"},
      {"select(1 < i < 3, 1, 2)", "comparisons do not chain"},
      {"A[0.5]", "an index is an integer expression"},
      {"A[A[i]]", "'A[i]' is a value, but an index reads only inputs that are declared to hold"},
      {"A[i * i]", "'i * i' multiplies axes"},
      {"A[n / i]", "'/' of integers needs a constant on its right; 'i' depends on an axis"},
      {"A[n % (i + 1)]", "needs a constant on its right; 'i + 1'"},
      {"A[select(i < 1, 0, i)]", "an index is an integer expression"},
  };
  for (const auto& [e, message] : cases) EXPECT_THAT(ParseError(WithValue(e)), HasSubstr(message));
  EXPECT_THAT(ParseError("op f(m) { in A[m] out Y[i: m, j: i] = A[i] }"),
              HasSubstr("unknown name 'i'"));
  EXPECT_THAT(ParseError("op f(m) { in A[m] out Y[i: m] = sum(r: i) A[i + r] }"),
              HasSubstr("extents and lets are made of parameters and lets; 'i' is an axis"));
  EXPECT_THAT(ParseError("op f(m) { let h = 0.5 * m in A[h] out Y[i: m] = A[i] }"),
              HasSubstr("an extent or let is an integer expression"));
}

TEST(NotationErrors, Shape) {
  const char* matmul =
      "op matmul(m, n, k) { in A[m, k], B[k, n] "
      "out C[i: m, j: n] = sum(r: k) A[i, r] * B[r, j] }";
  EXPECT_EQ(ShapeError(matmul, {{"m", 1}}), "operator 'matmul' needs a value for n, k");
  EXPECT_EQ(ShapeError(matmul, {{"m", 1}, {"n", 1}, {"k", 1}, {"kk", 1}}),
            "operator 'matmul' has no parameter 'kk'; did you mean 'k'?");
  EXPECT_EQ(ShapeError(matmul, {{"m", 0}, {"n", 1}, {"k", 1}}),
            "1:27: dimension 0 of input 'A' has extent m = 0; it must be at least 1");
  EXPECT_THAT(ShapeError(matmul, {{"m", 1}, {"n", -4}, {"k", 1}}), HasSubstr("extent n = -4"));
  EXPECT_THAT(
      ShapeError(matmul, {{"m", int64_t{1} << 40}, {"n", 1}, {"k", int64_t{1} << 40}}),
      HasSubstr("tensor 'A' of 1099511627776 x 1099511627776 float32 elements is too large"));
  EXPECT_THAT(ShapeError(matmul, {{"m", INT64_MAX}, {"n", 1}, {"k", 1}}),
              HasSubstr("it must be at most 281474976710656"));
  EXPECT_THAT(ShapeError(matmul, {{"m", int64_t{1} << 44}, {"n", 1}, {"k", 1}}), "(accepted)");
  EXPECT_THAT(
      ShapeError("op f(n, s) { let o = n / s in A[o] out Y[i: o] = A[i] }", {{"n", 4}, {"s", 0}}),
      HasSubstr("1:24: the divisor in 'n / s' is 0 at this shape; it must be positive"));
  EXPECT_THAT(ShapeError("op f(n) { let o = n * n * n in A[o] out Y[i: o] = A[i] }",
                         {{"n", int64_t{1} << 22}}),
              HasSubstr("'n * n * n' overflows 64 bits at this shape"));
  EXPECT_THAT(ShapeError("op f(n) { in A[n] out Y[i: n] = A[i - i * n * n * n] }",
                         {{"n", int64_t{1} << 22}}),
              HasSubstr("'i * n * n' overflows 64 bits"));
  EXPECT_THAT(ShapeError("op f(n) { in A[n] out Y[i: n] = A[i - i * n * n] }",
                         {{"n", (int64_t{1} << 20) + 2}}),
              HasSubstr("'i * n * n' goes beyond +-2^60 in stage 'Y'"));
  EXPECT_THAT(ShapeError("op f(n) { in A[2] out Y[i: n] = sum(r: n, q: n) A[min(i + r + q, 1)] }",
                         {{"n", int64_t{1} << 22}}),
              HasSubstr("the extents of stage 'Y' multiply to more than"));
  EXPECT_THAT(
      ShapeError("op f(n) { in A[n], B[n] out Y[i: n] = select(n > 4, A[i], B[i]) }", {{"n", 5}}),
      HasSubstr("input 'B' is never read at this shape: the conditions"));
  EXPECT_THAT(ShapeError("op f(n, v) { in I[n]: index(v), E[v] out Y[i: n] = E[I[i]] }",
                         {{"n", 5}, {"v", 1}}),
              HasSubstr("input 'I' says which of one element is meant at this shape"));
  EXPECT_THAT(ShapeError("op f(n) { in A[n] out Y[i: n] = A[i] * 1e300 }", {{"n", 5}}),
              HasSubstr("is beyond the range of float32"));
}

TEST(NotationErrors, ReadsOutOfRange) {
  EXPECT_EQ(
      ShapeError("op f(n) { in A[n] out Y[i: n] = A[i + 1] }", {{"n", 8}}),
      "1:33: stage 'Y' reads 'A' out of range: index 0, 'i + 1', takes values from 1 to 8, but "
      "that axis of 'A' has extent 8 (0 to 7); guard the read with select or correct the "
      "extents");
  EXPECT_THAT(ShapeError("op f(n) { in A[n] out Y[i: n] = A[i - 1] }", {{"n", 8}}),
              HasSubstr("takes values from -1 to 6"));
  const auto guarded = [](const std::string& condition, const std::string& index) {
    return ShapeError(
        absl::StrCat("op f(n = 8, p = 2) { in A[n + 0*p] out Y[i: n + 2*p, j: 4] = "
                     "select(",
                     condition, ", A[", index, "], 0) }"));
  };
  const char* kAccepted = "(accepted)";
  EXPECT_EQ(guarded("i >= p && i < n + p", "i - p"), kAccepted);
  EXPECT_EQ(guarded("p <= i && n + p > i", "i - p"), kAccepted);
  EXPECT_EQ(guarded("!(i < p || i >= n + p)", "i - p"), kAccepted);
  EXPECT_EQ(guarded("!(!(i >= p && i < n + p))", "i - p"), kAccepted);
  EXPECT_EQ(guarded("i == 5", "i"), kAccepted);
  EXPECT_EQ(guarded("!(i != 5)", "i + 2"), kAccepted);
  EXPECT_EQ(guarded("i != 0", "(i - 1) / 2"), kAccepted);
  EXPECT_EQ(guarded("!(j == 3)", "j + 5"), kAccepted);
  EXPECT_THAT(guarded("j != 2", "j + 5"), HasSubstr("takes values from 5 to 8"));
  EXPECT_EQ(guarded("i < 8", "i / 2 + 4"), kAccepted);
  EXPECT_EQ(guarded("i + j < n", "i + j"), kAccepted);
  EXPECT_EQ(guarded("i*2 + j - p >= 0 && i*2 + j - p < n", "i*2 + j - p"), kAccepted);
  EXPECT_EQ(guarded("i - j >= 0 && i - j < n", "(i - j) / 2"), kAccepted);
  EXPECT_EQ(guarded("i + 1 - 2*j >= 0", "(i + 1 - 2*j) / 3"), kAccepted);
  EXPECT_THAT(guarded("i + 2 - 2*j >= 0", "(i + 1 - 2*j) / 3"), HasSubstr("out of range"));
  EXPECT_EQ(guarded("i < 100", "i % 8"), kAccepted);
  EXPECT_EQ(guarded("i < 100", "min(max(i - p, 0), n - 1)"), kAccepted);
  EXPECT_EQ(guarded("i < p && i > 5", "i + 1000"), kAccepted) << "never evaluated";
  EXPECT_THAT(guarded("i >= p", "i - p"), HasSubstr("takes values from 0 to 9"));
  EXPECT_THAT(guarded("i < n + p", "i - p"), HasSubstr("takes values from -2 to 7"));
  EXPECT_THAT(guarded("i >= p || i < n + p", "i - p"), HasSubstr("takes values from -2 to 9"));
  EXPECT_THAT(guarded("i + j <= n", "i + j"), HasSubstr("out of range"));
  // The other side of a select is where the condition is false; a condition guards its own reads
  // not at all.
  EXPECT_EQ(ShapeError("op f(n) { in A[n] out Y[i: n + 1] = select(i >= n, 0, A[i]) }", {{"n", 8}}),
            kAccepted);
  EXPECT_EQ(
      ShapeError("op f(n) { in A[n] out Y[i: n] = select(i == n - 1, 0, A[i + 1]) }", {{"n", 8}}),
      kAccepted);
  EXPECT_THAT(
      ShapeError("op f(n) { in A[n] out Y[i: n + 1] = select(i < n, 0, A[i]) }", {{"n", 8}}),
      HasSubstr("takes values from 8 to 8"));
  EXPECT_THAT(ShapeError("op f(n) { in A[n] out Y[i: n + 1] = select(i < n && A[i] > 0, 1, 0) }",
                         {{"n", 8}}),
              HasSubstr("takes values from 0 to 8"));
}

// Exhaustively: what the proof accepts is never evaluated out of range.
TEST(NotationErrors, AcceptedReadsAreInside) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    const int a = pick(-2, 2), b = pick(-2, 2), c = pick(-6, 6), extent = pick(1, 12);
    const int d = pick(1, 3), p = pick(-2, 2), q = pick(-2, 2), low = pick(-4, 8),
              high = pick(-2, 14);
    const std::string text = absl::StrCat(
        "op f() { in A[", extent, "] out Y[i: 6, j: 5] = select(", p, "*i + ", q, "*j >= ", low,
        " && i + ", q, "*j < ", high, ", A[(", a, "*i + ", b, "*j + ", c, ") / ", d, "], 0) }");
    if (!ParseOne(text).Instantiate({}, DType::kFloat32).ok()) continue;
    ++accepted;
    for (int i = 0; i < 6; ++i) {
      for (int j = 0; j < 5; ++j) {
        if (!(p * i + q * j >= low && i + q * j < high)) continue;
        const int x = a * i + b * j + c;
        const int index = x >= 0 ? x / d : -((-x + d - 1) / d);
        ASSERT_TRUE(index >= 0 && index < extent) << text;
      }
    }
  }
  EXPECT_GT(accepted, 50);
}

TEST(NotationErrors, BombsAreRefusedFast) {
  const auto repeat = [](const std::string& text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
  };
  const std::string head = "op f(n = 8) { in A[n] out Y[i: n] = ";
  for (const char* opening : {"(", "-", "!", "exp(", "A[", "sum(r: ", "sum(r: n) "}) {
    EXPECT_THAT(ParseError(head + repeat(opening, 5000)), HasSubstr("more than 64 levels deep"))
        << opening;
  }
  EXPECT_THAT(ParseError(head + "A[i]" + repeat(" + A[i]", 5000)),
              HasSubstr("more than 64 levels deep"));
  EXPECT_THAT(ParseError(repeat(" ", kMaxNotationBytes + 1)), HasSubstr("at most 65536"));
  std::string stages = "op f(n) { in A[n] T0[i: n] = A[i] ";
  for (int i = 1; i <= kMaxStages; ++i) {
    absl::StrAppend(&stages, "T", i, "[i: n] = T", i - 1, "[i] * T", i - 1, "[i] ");
  }
  EXPECT_THAT(ParseError(stages), HasSubstr("more than 64 stages"));
  std::vector<std::string> axes;
  for (int i = 0; i <= kMaxAxes; ++i) axes.push_back(absl::StrCat("x", i, ": 1"));
  EXPECT_THAT(ParseError("op f() { out Y[" + absl::StrJoin(axes, ", ") + "] = 1 }"),
              HasSubstr("17 axes; at most 16"));
  // A balanced tree stays shallow.
  std::string wide = "A[i]";
  for (int i = 0; i < 12; ++i) wide = "(" + wide + "+" + (i < 11 ? wide : "A[i]") + ")";
  EXPECT_THAT(ParseError(head + wide + "}"), HasSubstr("has more than 2048 operations"));
  std::string index = "i/3";
  for (int i = 0; i < 7; ++i) index = "(" + index + "+" + index + ")";
  EXPECT_THAT(ParseError(head + "A[" + index + "] }"), HasSubstr("more than 128 operands"));
  EXPECT_THAT(ParseError("op " + repeat("x", 65) + "() {}"), HasSubstr("a name of 65 characters"));
}

}  // namespace
}  // namespace heddle::search_space
