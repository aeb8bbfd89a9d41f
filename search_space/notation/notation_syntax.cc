#include "search_space/notation/notation_syntax.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace heddle::search_space {
namespace {

using Kind = SyntaxNode::Kind;

struct NamedFunction {
  const char* name;
  Function function;
};

constexpr Function Math(Op op, int arguments = 1) {
  return {Function::Kind::kMath, arguments, op, DType::kFloat32};
}
constexpr Function CastTo(DType dtype) { return {Function::Kind::kCast, 1, Op::kCast, dtype}; }

constexpr NamedFunction kFunctions[] = {
    {"exp", Math(Op::kExp)},
    {"log", Math(Op::kLog)},
    {"sqrt", Math(Op::kSqrt)},
    {"rsqrt", Math(Op::kRsqrt)},
    {"tanh", Math(Op::kTanh)},
    {"erf", Math(Op::kErf)},
    {"sigmoid", Math(Op::kSigmoid)},
    {"abs", Math(Op::kAbs)},
    {"max", Math(Op::kMax, 2)},
    {"min", Math(Op::kMin, 2)},
    {"pow", Math(Op::kPow, 2)},
    {"select", {Function::Kind::kSelect, 3, Op::kSelect, DType::kFloat32}},
};

constexpr int kUnaryPrecedence = 6;
constexpr int kPrimaryPrecedence = 7;

int PrecedenceOf(const SyntaxNode& node) {
  switch (node.kind) {
    case Kind::kReduce:
      return 0;
    case Kind::kBinary:
      return Precedence(node.text);
    case Kind::kUnary:
      return kUnaryPrecedence;
    default:
      return kPrimaryPrecedence;
  }
}

std::string PrintAtLeast(const SyntaxNode& node, int precedence) {
  const std::string text = Print(node);
  return PrecedenceOf(node) < precedence ? absl::StrCat("(", text, ")") : text;
}

template <typename Container, typename ToText>
std::string Join(const Container& items, const ToText& to_text) {
  std::string text;
  for (const auto& item : items) absl::StrAppend(&text, text.empty() ? "" : ", ", to_text(item));
  return text;
}

std::string PrintList(const std::vector<SyntaxPtr>& nodes) {
  return Join(nodes, [](const SyntaxPtr& node) { return Print(*node); });
}

std::string PrintAxes(const std::vector<AxisSyntax>& axes) {
  return Join(axes, [](const AxisSyntax& axis) {
    return absl::StrCat(axis.name, ": ", Print(*axis.extent));
  });
}

// The shortest digits that read back as the same number, never looking like an integer.
std::string PrintReal(double value) {
  if (std::isinf(value)) return "inf";
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string PrintType(const ItemSyntax& item) {
  if (item.index_extent) return absl::StrCat(": index(", Print(*item.index_extent), ")");
  return item.dtype ? absl::StrCat(": ", NameOf(*item.dtype)) : "";
}

std::string PrintItem(const ItemSyntax& item) {
  switch (item.kind) {
    case ItemSyntax::Kind::kLet:
      return absl::StrCat(item.name, " = ", Print(*item.value));
    case ItemSyntax::Kind::kInput:
      return absl::StrCat(item.name, "[", PrintList(item.extents), "]", PrintType(item));
    case ItemSyntax::Kind::kStage:
      return absl::StrCat(item.is_output ? "out " : "", item.name, "[", PrintAxes(item.axes), "]",
                          PrintType(item), " = ", Print(*item.value));
  }
  return "";
}

bool IsIntegerExpression(const SyntaxNode& node) {
  const bool arithmetic =
      (node.kind == Kind::kBinary || node.kind == Kind::kUnary)
          ? !IsCondition(node)
          : node.kind == Kind::kCall && (node.text == "min" || node.text == "max");
  if (!arithmetic) {
    return node.kind == Kind::kInteger || node.kind == Kind::kName || node.kind == Kind::kIndexRead;
  }
  return std::all_of(node.args.begin(), node.args.end(),
                     [](const SyntaxPtr& arg) { return IsIntegerExpression(*arg); });
}

}  // namespace

void Refuse(const Position& at, const std::string& message) {
  throw NotationError{absl::StrCat(at.line, ":", at.column, ": ", message)};
}

int Precedence(const std::string& op) {
  static constexpr std::pair<const char*, int> kOperators[] = {
      {"||", 1}, {"&&", 2}, {"<", 3}, {"<=", 3}, {">", 3}, {">=", 3}, {"==", 3},
      {"!=", 3}, {"+", 4},  {"-", 4}, {"*", 5},  {"/", 5}, {"%", 5},
  };
  for (const auto& [name, precedence] : kOperators) {
    if (op == name) return precedence;
  }
  return 0;
}

std::optional<Function> FindFunction(const std::string& name) {
  for (const NamedFunction& row : kFunctions) {
    if (name == row.name) return row.function;
  }
  for (const DType type : kWorkloadTypes) {  // casts are called by what they give
    if (name == NameOf(type)) return CastTo(type);
  }
  return std::nullopt;
}

std::vector<std::string> FunctionNames() {
  std::vector<std::string> names;
  for (const NamedFunction& row : kFunctions) names.push_back(row.name);
  for (const DType type : kWorkloadTypes) names.push_back(NameOf(type));
  return names;
}

Combiner FindCombiner(const std::string& name) {
  if (name == "sum") return Combiner::kSum;
  if (name == "max") return Combiner::kMax;
  if (name == "min") return Combiner::kMin;
  if (name == "prod") return Combiner::kProd;
  return Combiner::kNone;
}

bool IsReduction(const std::string& name) {
  return FindCombiner(name) != Combiner::kNone || name == "argmax" || name == "argmin";
}

namespace {

// What other languages have as a function.
struct OtherFunction {
  const char* name;
  const char* advice;
};
constexpr char kNoOrder[] =
    "an order of elements is not expressible; for a small k repeat max over what is smaller: "
    "A[i: m] = max(r: n) X[i, r], then B[i: m] = max(r: n) select(X[i, r] < A[i], X[i, r], -inf)";
constexpr char kNoMean[] =
    "a mean is a sum that is divided where it is read: S[i: m] = sum(r: n) X[i, r], then S[i] / n";
constexpr char kNoClamp[] = "write min(max(x, least), greatest)";
constexpr char kNoAny[] = "write max(r: n) select(condition, 1, 0), or min for all";
constexpr char kNotThere[] =
    "there is no such function, nor others to make it of; an input may hold its values";
constexpr OtherFunction kOtherFunctions[] = {
    {"sort", kNoOrder},
    {"argsort", kNoOrder},
    {"topk", kNoOrder},
    {"top_k", kNoOrder},
    {"mean", kNoMean},
    {"avg", kNoMean},
    {"average", kNoMean},
    {"any", kNoAny},
    {"all", kNoAny},
    {"clamp", kNoClamp},
    {"clip", kNoClamp},
    {"relu", "write max(x, 0)"},
    {"where", "write select(condition, x, y)"},
    {"square", "write x * x"},
    {"silu", "write x * sigmoid(x)"},
    {"swish", "write x * sigmoid(x)"},
    {"gelu", "write 0.5 * x * (1 + erf(x * 0.7071067811865476))"},
    {"softplus", "write max(x, 0) + log(1 + exp(-abs(x)))"},
    {"exp2", "write pow(2, x)"},
    {"log2", "write log(x) * 1.4426950408889634"},
    {"fabs", "write abs(x)"},
    {"softmax",
     "it is a maximum, a sum and a quotient, a stage each: M[i: m] = max(r: n) X[i, r], "
     "Z[i: m] = sum(r: n) exp(X[i, r] - M[i]), then exp(X[i, j] - M[i]) / Z[i]"},
    {"sin", kNotThere},
    {"cos", kNotThere},
    {"tan", kNotThere},
    {"floor", kNotThere},
    {"ceil", kNotThere},
    {"round", kNotThere},
};

// Short names of the data types.
struct ShortType {
  const char* name;
  DType type;
};
constexpr ShortType kShortTypes[] = {{"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16},
                                     {"f16", DType::kFloat16},   {"half", DType::kFloat16},
                                     {"fp32", DType::kFloat32},  {"f32", DType::kFloat32},
                                     {"float", DType::kFloat32}, {"fp64", DType::kFloat64},
                                     {"f64", DType::kFloat64},   {"double", DType::kFloat64}};

}  // namespace

const char* WhyNoFunction(const std::string& name) {
  for (const OtherFunction& other : kOtherFunctions) {
    if (name == other.name) return other.advice;
  }
  return nullptr;
}

std::optional<DType> TypeOfShortName(const std::string& name) {
  for (const ShortType& known : kShortTypes) {
    if (name == known.name) return known.type;
  }
  return std::nullopt;
}

bool IsReserved(const std::string& name) {
  return name == "op" || name == "let" || name == "in" || name == "out" || name == "inf" ||
         IsReduction(name) || FindFunction(name).has_value();
}

bool IsCondition(const SyntaxNode& node) {
  if (node.kind == Kind::kUnary) return node.text == "!";
  return node.kind == Kind::kBinary && Precedence(node.text) <= kComparisonPrecedence;
}

bool IsIntegerComparison(const SyntaxNode& node) {
  return IsIntegerExpression(*node.args[0]) && IsIntegerExpression(*node.args[1]);
}

std::string Print(const SyntaxNode& node) {
  switch (node.kind) {
    case Kind::kInteger:
      return absl::StrCat(node.integer);
    case Kind::kReal:
      return PrintReal(node.real);
    case Kind::kName:
      return node.text;
    case Kind::kRead:
    case Kind::kIndexRead:
      return absl::StrCat(node.text, "[", PrintList(node.args), "]");
    case Kind::kCall:
      return absl::StrCat(node.text, "(", PrintList(node.args), ")");
    case Kind::kUnary:
      return absl::StrCat(node.text, PrintAtLeast(*node.args[0], kUnaryPrecedence));
    case Kind::kReduce:
      return absl::StrCat(node.text, "(", PrintAxes(node.axes), ") ", Print(*node.args[0]));
    case Kind::kBinary: {
      // Left-associative, and comparisons do not chain.
      const int own = Precedence(node.text);
      const int left = own == kComparisonPrecedence ? own + 1 : own;
      return absl::StrCat(PrintAtLeast(*node.args[0], left), " ", node.text, " ",
                          PrintAtLeast(*node.args[1], own + 1));
    }
  }
  return "";
}

std::string Print(const OperatorSyntax& op, const std::map<std::string, int64_t>* values) {
  const std::string parameters = Join(op.parameters, [&](const OperatorParameter& parameter) {
    std::optional<int64_t> value = parameter.default_value;
    if (values != nullptr) value = values->at(parameter.name);
    return value ? absl::StrCat(parameter.name, " = ", *value) : parameter.name;
  });
  std::string text = absl::StrCat("op ", op.name, "(", parameters, ") {");
  const ItemSyntax* previous = nullptr;
  for (const ItemSyntax& item : op.items) {
    const bool continues =
        previous != nullptr && item.kind == previous->kind && item.kind != ItemSyntax::Kind::kStage;
    const char* keyword = item.kind == ItemSyntax::Kind::kLet     ? "let "
                          : item.kind == ItemSyntax::Kind::kInput ? "in "
                                                                  : "";
    absl::StrAppend(&text, continues ? ", " : absl::StrCat("\n  ", keyword), PrintItem(item));
    previous = &item;
  }
  return absl::StrCat(text, "\n}\n");
}

}  // namespace heddle::search_space
