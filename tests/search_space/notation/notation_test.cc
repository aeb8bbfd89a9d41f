#include "search_space/notation/notation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/search_space/notation/notation_support.h"

namespace heddle::search_space {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
    for (const OperatorParameter& p : op.parameters()) {
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
    for (const OperatorParameter& p : op.parameters()) {
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
