#include "search_space/notation/notation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle::search_space {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Shape = std::map<std::string, int64_t>;

Operator ParseOne(const std::string& text) {
  const auto parsed = ParseOperators(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->size(), 1u);
  return parsed->front();
}

TensorProgram Instantiate(const std::string& text, const Shape& shape = {},
                          DType dtype = DType::kFloat32) {
  auto program = ParseOne(text).Instantiate(shape, dtype);
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

std::string ParseError(const std::string& text) {
  const auto parsed = ParseOperators(text);
  if (parsed.ok()) return "(accepted)";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

std::string ShapeError(const std::string& text, const Shape& shape = {}) {
  const auto program = ParseOne(text).Instantiate(shape, DType::kFloat32);
  if (program.ok()) return "(accepted)";
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(program.status().message());
}

// An operator whose output is the value `e` over A[n], B[n] and axis i: n.
std::string WithValue(const std::string& e) {
  return absl::StrCat("op f(n = 8) { in A[n], B[n] out Y[i: n] = ", e, " + 0*A[i] + 0*B[i] }");
}

std::string Body(const std::string& e) {
  return ToString(
      Instantiate(absl::StrCat("op f(n = 8) { in A[n] out Y[i: n] = ", e, " }")).stages[0].body);
}

// ------------------------------------------------------------------------------------- normal text

TEST(NotationText, IsNormalised) {
  const Operator op = ParseOne(R"(
    # a comment, with an umlaut: ä
    op f ( m,n=3 ){let a=(m+n)*2 let b=a
      in A[ m ,((n))] in B[(m - n) - 1 + a - b]   # another
      T[i:m]=sum(r:n)(A[i,r]*(007)+1.50)/(2.0*1e5)
      out Y[i:m]=-(T[i]+B[0])-(T[i]-.5) })");
  EXPECT_EQ(op.text(),
            "op f(m, n = 3) {\n"
            "  let a = (m + n) * 2, b = a\n"
            "  in A[m, n], B[m - n - 1 + a - b]\n"
            "  T[i: m] = sum(r: n) (A[i, r] * 7 + 1.5) / (2.0 * 1e+05)\n"
            "  out Y[i: m] = -(T[i] + B[0]) - (T[i] - 0.5)\n"
            "}\n");
  EXPECT_EQ(ParseOne(op.text()).text(), op.text());
  EXPECT_EQ(op.parameters().size(), 2u);
  EXPECT_EQ(op.parameters()[0].default_value, std::nullopt);
  EXPECT_EQ(op.parameters()[1].default_value, 3);
}

TEST(NotationText, KeepsMeaningfulParentheses) {
  for (const char* e :
       {"a - (b - c)", "(a + b) * c", "a + b * c", "a / (b * c)", "a / b * c", "-(a + b)", "-a * b",
        "a * -b", "--a", "select(!(a < b), a, b)", "select((a < b || b < c) && c < a, a, b)",
        "select(a < b || b < c && c < a, a, b)", "a - -b", "pow(a, b + c)", "max(a, -inf)",
        "float16(a) + float32(b)", "a * 1e-05 + 2.0 + 3"}) {
    const std::string text = absl::StrCat("op f(a, b, c) {\n  in X[a]\n  out Y[i: a] = (", e,
                                          ") * X[i] * a * b * c\n}\n");
    const std::string normal = ParseOne(text).text();
    EXPECT_EQ(ParseOne(normal).text(), normal);
    EXPECT_THAT(normal, HasSubstr(e));
  }
}

TEST(NotationText, BuiltinsRoundTrip) {
  std::set<std::string> names;
  for (const Operator& op : BuiltinOperators()) {
    names.insert(op.name());
    EXPECT_EQ(ParseOne(op.text()).text(), op.text());
  }
  EXPECT_THAT(names,
              ElementsAre("batch_matmul", "conv2d", "conv2d_bias_relu", "conv2d_nhwc",
                          "depthwise_conv2d", "gemm_relu_add", "layer_norm", "matmul", "matmul_nt",
                          "matmul_tn", "softmax", "transpose", "vector_add", "window_sum"));
}

// A random expression tree printed with every parenthesis must normalise to a text that normalises
// to itself and means the same, which the instantiated body shows.
TEST(NotationText, RandomExpressionsRoundTrip) {
  std::mt19937 random(20261121);
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  const std::function<std::string(int)> value = [&](int depth) -> std::string {
    if (depth == 0 || pick(5) == 0) {
      return std::vector<std::string>{"A[i]", "B[n - 1 - i]", "i", "n", "2", "0.25"}[pick(6)];
    }
    const auto sub = [&] { return value(depth - 1); };
    switch (pick(5)) {
      case 0:
        return absl::StrCat("(-", sub(), ")");
      case 1:
        return absl::StrCat("max(", sub(), ",", sub(), ")");
      case 2: {
        const char* compare = std::vector<const char*>{"<", "<=", ">", ">=", "==", "!="}[pick(6)];
        return absl::StrCat("select(((", sub(), ")", compare, "(", sub(), ")) ||!(", sub(), "<",
                            sub(), "),", sub(), ",", sub(), ")");
      }
      default:
        return absl::StrCat("(", sub(), std::vector<const char*>{"+", "-", "*", "/"}[pick(4)],
                            sub(), ")");
    }
  };
  for (int round = 0; round < 300; ++round) {
    const std::string text = WithValue(value(4));
    const Operator op = ParseOne(text);
    ASSERT_EQ(ParseOne(op.text()).text(), op.text()) << text;
    EXPECT_EQ(ToString(Instantiate(op.text()).stages[0].body),
              ToString(Instantiate(text).stages[0].body));
  }
}

// ------------------------------------------------------------------------------------ refusals

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

// --------------------------------------------------------------------------------- instantiation

TEST(Notation, Precedence) {
  EXPECT_EQ(Body("A[i] + 2 * A[i] / 4 - 1"), "A[i] + 2 * A[i] / 4 - 1");
  EXPECT_EQ(Body("(A[i] + 2) * -A[i]"), "(A[i] + 2) * -A[i]");
  EXPECT_EQ(Body("-2 * A[i]"), "-2 * A[i]");
  EXPECT_EQ(Body("select(A[i] > 1 || A[i] < 0 && 2 >= A[i], A[i], -inf)"),
            "select(1 < A[i] || A[i] < 0 && A[i] <= 2, A[i], -inf)");
}

TEST(Notation, AxesAndParametersAsValues) {
  EXPECT_EQ(Body("A[i] * i / n"), "A[i] * float32(i) / 8");
  EXPECT_EQ(Body("A[i] * (i / 2)"), "A[i] * (float32(i) / 2)") << "a value's division";
  EXPECT_EQ(Body("select(i / 2 == 1, A[i], 0)"), "select(i / 2 == 1, A[i], 0)");
  EXPECT_EQ(Body("select(i * 0.5 < 2, A[i], 0)"), "select(float32(i) * 0.5 < 2, A[i], 0)");
  EXPECT_EQ(Body("select(A[i] < i, A[i], 0)"), "select(A[i] < float32(i), A[i], 0)");
}

TEST(Notation, LetAndIndexArithmetic) {
  const TensorProgram program = Instantiate(
      "op f(h, s = 2) { let a = (h - 7) / s, b = -7 % 4, c = min(a, b) + max(3, s) "
      "in A[64] out Y[i: a + 9, j: b + c] = A[i*s + j % 2] }",
      {{"h", 4}});
  // a = floor(-3 / 2) = -2, b = -(7 % 4)?: unary minus binds tighter, so (-7) % 4 = 1.
  EXPECT_EQ(program.stages[0].tensor->shape, (std::vector<int64_t>{7, 1 + -2 + 3}));
  EXPECT_EQ(ToString(program.stages[0].body), "A[i * 2 + j]");
}

TEST(Notation, ReductionMayStandInParentheses) {
  const TensorProgram program =
      Instantiate("op f(n) { in A[n] out Y[i: 1] = (sum(r: n) A[r] + 1) }", {{"n", 5}});
  EXPECT_EQ(program.stages[0].combiner, Combiner::kSum);
  EXPECT_EQ(ToString(program.stages[0].body), "A[r] + 1") << "the body extends to the right";
  ASSERT_EQ(program.stages[0].reduce_axes.size(), 1u);
  EXPECT_EQ(program.stages[0].reduce_axes[0]->extent, 5);
}

TEST(Notation, MaxWithAColonIsAReduction) {
  const TensorProgram program = Instantiate(
      "op f(n) { in A[n] M[i: 1] = max(r: n) A[r] out Y[i: n] = max(A[i], M[0]) }", {{"n", 5}});
  EXPECT_EQ(program.stages[0].combiner, Combiner::kMax);
  EXPECT_EQ(program.stages[1].combiner, Combiner::kNone);
  EXPECT_EQ(ToString(program.stages[1].body), "max(A[i], M[0])");
}

TEST(Notation, DecidedSelectsVanish) {
  EXPECT_EQ(Body("select(n > 3, A[i], 0)"), "A[i]");
  EXPECT_EQ(Body("select(i >= 0 && i < n, A[i], 0)"), "A[i]");
}

TEST(Notation, BroadcastAxesAreAllowed) {
  const TensorProgram program =
      Instantiate("op f(n) { in A[n] out Y[i: n, j: 3] = A[i] }", {{"n", 5}});
  EXPECT_EQ(program.stages[0].tensor->shape, (std::vector<int64_t>{5, 3}));
}

TEST(Notation, SixteenBitTypesComputeInFloat32) {
  const TensorProgram program =
      Instantiate("op f(n) { in A[n] T[i: n] = A[i] * 2 out Y[i: n] = exp(T[i]) }", {{"n", 5}},
                  DType::kFloat16);
  EXPECT_EQ(program.inputs[0]->dtype, DType::kFloat16);
  EXPECT_EQ(program.stages[0].tensor->dtype, DType::kFloat32);
  EXPECT_EQ(ToString(program.stages[0].body), "float32(A[i]) * 2");
  EXPECT_EQ(program.stages[1].tensor->dtype, DType::kFloat16);
  EXPECT_EQ(program.stages[1].body->type, DType::kFloat32);
}

TEST(Notation, ATensorsOwnTypeOverridesTheWorkloads) {
  const TensorProgram program = Instantiate(
      "op f(n) { in A[n]: bfloat16, B[n] T[i: n]: float16 = A[i] * B[i] S[i: 1]: float64 = sum(r: "
      "n) "
      "T[r] out Y[i: n]: bfloat16 = T[i] + S[0] out Z[i: n] = 0.1 * A[i] }",
      {{"n", 5}});
  EXPECT_EQ(program.inputs[0]->dtype, DType::kBFloat16);
  EXPECT_EQ(program.inputs[1]->dtype, DType::kFloat32);
  EXPECT_EQ(program.stages[0].tensor->dtype, DType::kFloat16);
  EXPECT_EQ(ToString(program.stages[0].body), "float32(A[i]) * B[i]");
  EXPECT_EQ(program.stages[1].tensor->dtype, DType::kFloat64);
  EXPECT_EQ(ToString(program.stages[1].body), "float64(float32(T[r]))") << "summed up in float64";
  EXPECT_EQ(program.stages[2].tensor->dtype, DType::kBFloat16);
  EXPECT_EQ(program.stages[2].body->type, DType::kFloat32);
  EXPECT_EQ(program.stages[3].tensor->dtype, DType::kFloat32);
  EXPECT_EQ(program.IoBytes(), 5 * (2 + 4 + 2 + 4));
}

TEST(Notation, Casts) {
  EXPECT_EQ(Body("float16(A[i]) + 1"), "float32(float16(A[i])) + 1");
  EXPECT_EQ(Body("float32(A[i])"), "A[i]");
  EXPECT_EQ(Body("float64(A[i]) * A[i]"), "float32(float64(A[i]) * float64(A[i]))");
  EXPECT_EQ(Body("0.1 * A[i]"), Body("0.100000001490116 * A[i]")) << "literals are float32";
}

TEST(Notation, OutputsMayBeReadLater) {
  const TensorProgram program =
      Instantiate("op f(n) { in A[n] out S[i: n] = A[i] * 2 out Y[i: n] = S[i] + 1 }", {{"n", 5}});
  EXPECT_TRUE(program.stages[0].is_output);
  EXPECT_TRUE(program.stages[1].is_output);
}

TEST(Notation, EveryTypeInstantiatesEveryBuiltin) {
  for (const Operator& op : BuiltinOperators()) {
    Shape shape;
    for (const Operator::Parameter& p : op.parameters()) {
      if (!p.default_value) shape[p.name] = p.name[0] == 'k' ? 3 : 7;
    }
    for (const DType type : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      EXPECT_TRUE(op.Instantiate(shape, type).ok()) << op.name();
    }
    EXPECT_FALSE(op.Instantiate(shape, DType::kInt64).ok());
  }
}

// ------------------------------------------------------------------------------------- identity

TEST(NotationIdentity, IsTheNormalisedWorkload) {
  const auto window = FindOperator(BuiltinOperators(), "window_sum");
  ASSERT_TRUE(window.ok());
  const auto program = window->Instantiate({{"n", 100}}, DType::kFloat32);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->canonical_text,
            "float32 op window_sum(n = 100, w = 3) {\n"
            "  in A[n]\n"
            "  out B[i: n - w + 1] = sum(r: w) A[i + r]\n"
            "}\n");
  EXPECT_THAT(program->hash, ::testing::MatchesRegex("[0-9a-f]{16}"));
  // Defaults, comments and layout do not matter; names, values and types do.
  const auto same =
      ParseOne(
          "op window_sum(n = 9, w) { in A[n] # x\n out B[i: (n - w) + 1] = sum(r: w) A[i + r] }")
          .Instantiate({{"n", 100}, {"w", 3}}, DType::kFloat32);
  EXPECT_EQ(same->canonical_text, program->canonical_text);
  EXPECT_EQ(same->hash, program->hash);
  EXPECT_NE(window->Instantiate({{"n", 101}}, DType::kFloat32)->hash, program->hash);
  EXPECT_NE(window->Instantiate({{"n", 100}}, DType::kFloat16)->hash, program->hash);
}

TEST(NotationIdentity, TypesOfTensorsBelongToItWhereTheyAreWritten) {
  const char* text =
      "op f(n) { in A[n]:bfloat16, I[n] : index(n) out Y[i: n] : float16 = A[I[i]] }";
  const TensorProgram program = Instantiate(text, {{"n", 5}});
  EXPECT_EQ(program.canonical_text,
            "float32 op f(n = 5) {\n"
            "  in A[n]: bfloat16, I[n]: index(n)\n"
            "  out Y[i: n]: float16 = A[I[i]]\n"
            "}\n");
  const auto again = ParseWorkload(program.canonical_text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->hash, program.hash);
  EXPECT_EQ(again->inputs[0]->dtype, DType::kBFloat16);
  EXPECT_EQ(again->stages[0].tensor->dtype, DType::kFloat16);
}

TEST(NotationIdentity, CanonicalTextReadsBack) {
  for (const Operator& op : BuiltinOperators()) {
    Shape shape;
    for (const Operator::Parameter& p : op.parameters()) {
      shape[p.name] = p.name == "pad" ? 1 : p.name[0] == 'k' ? 3 : 8;
    }
    const auto program = op.Instantiate(shape, DType::kBFloat16);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto again = ParseWorkload(program->canonical_text);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->canonical_text, program->canonical_text);
    EXPECT_EQ(again->shape, program->shape);
    EXPECT_EQ(again->dtype, program->dtype);
  }
  EXPECT_FALSE(ParseWorkload("").ok());
  EXPECT_FALSE(ParseWorkload("float32").ok());
  EXPECT_THAT(std::string(ParseWorkload("float23 op f() { out Y[i: 1] = 1 }").status().message()),
              HasSubstr("did you mean 'float32'"));
  EXPECT_FALSE(ParseWorkload("float32 op f() { out Y[i: 1] = 1 } op g() { out Y[i: 1] = 1 }").ok());
}

// --------------------------------------------------------------------------------- argmax, argmin

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

// ------------------------------------------------------------------------------- small parsers

TEST(ParseShape, AcceptsPairsAndNamesWhatIsWrong) {
  EXPECT_EQ(*ParseShape("m=512,n=3"), (Shape{{"m", 512}, {"n", 3}}));
  EXPECT_EQ(*ParseShape(" m = 512 , n=-3 "), (Shape{{"m", 512}, {"n", -3}}));
  EXPECT_EQ(*ParseShape(""), Shape{});
  const std::pair<const char*, const char*> cases[] = {
      {"m", "expected name=integer separated by commas, as in m=512,n=512; found 'm'"},
      {"m=1,", "found ''"},
      {"=1", "found '=1'"},
      {"1m=1", "found '1m=1'"},
      {"m=", "the value of m must be an integer, found ''"},
      {"m=1.5", "found '1.5'"},
      {"m=2k", "found '2k'"},
      {"m=1,m=2", "m is given twice"},
      {"m=9223372036854775808", "does not fit a 64-bit integer"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(std::string(ParseShape(text).status().message()), HasSubstr(message)) << text;
  }
}

TEST(ParseDType, KnowsFloatingTypes) {
  EXPECT_EQ(*ParseDType("float32"), DType::kFloat32);
  EXPECT_EQ(*ParseDType("bfloat16"), DType::kBFloat16);
  EXPECT_EQ(std::string(ParseDType("flaot32").status().message()),
            "unknown data type 'flaot32'; did you mean 'float32'?");
  EXPECT_THAT(std::string(ParseDType("int8").status().message()),
              HasSubstr("known: float16, bfloat16, tf32, float32, float64"));
}

TEST(FindOperator, SuggestsNearNames) {
  EXPECT_EQ(FindOperator(BuiltinOperators(), "matmul")->name(), "matmul");
  const auto missing = FindOperator(BuiltinOperators(), "matmull");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("unknown operator 'matmull'; did you mean 'matmul'"));
  EXPECT_THAT(std::string(FindOperator(BuiltinOperators(), "conv").status().message()),
              HasSubstr("'conv2d'"));
  EXPECT_THAT(std::string(FindOperator(BuiltinOperators(), "zzzzzz").status().message()),
              HasSubstr("known: batch_matmul, conv2d,"));
}

}  // namespace
}  // namespace heddle::search_space
