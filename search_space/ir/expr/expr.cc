#include "search_space/ir/expr/expr.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "search_space/ir/expr/make_node.h"

namespace heddle::search_space {

int64_t SizeOf(DType type) {
  switch (type) {
    case DType::kBool:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kTF32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  HEDDLE_CHECK(false, "a type without a size");
}

const char* NameOf(DType type) {
  static constexpr const char* kNames[] = {"bool",     "int32", "int64",   "float16",
                                           "bfloat16", "tf32",  "float32", "float64"};
  return kNames[static_cast<int>(type)];
}

Var MakeVar(std::string name, int64_t extent) {
  static std::atomic<uint64_t> next_id{1};
  return MakeNode<Variable>(Variable{std::move(name), extent, next_id++});
}

const char* NameOf(Scope scope) {
  static constexpr const char* kNames[] = {"global", "shared", "local"};
  return kNames[static_cast<int>(scope)];
}

int64_t SwizzledOffset(const Buffer& buffer, int64_t offset) {
  if (buffer.swizzle == 0) return offset;
  const int64_t within = buffer.swizzle_copy > 0 ? offset % buffer.swizzle_copy : offset;
  const int64_t row = within / buffer.swizzle_row, chunks = buffer.swizzle_row / buffer.swizzle;
  const int64_t chunk = within % buffer.swizzle_row / buffer.swizzle;
  return offset + ((chunk ^ (row / buffer.swizzle_period % chunks)) - chunk) * buffer.swizzle;
}

BufferRef MakeBuffer(std::string name, DType dtype, Scope scope, std::vector<int64_t> shape) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.dtype = dtype;
  buffer.scope = scope;
  buffer.strides.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    buffer.strides[i] = stride;
    stride *= shape[i];
  }
  buffer.elements = stride;
  buffer.shape = std::move(shape);
  return std::make_shared<const Buffer>(std::move(buffer));
}

namespace {

// One row per operation, in the order of Op. `infix` is the operator between two operands.
struct OpRow {
  const char* name;
  const char* infix;
  int precedence;
};
constexpr OpRow kOps[] = {
    {"int", nullptr, 9},   {"float", nullptr, 9}, {"var", nullptr, 9},    {"load", nullptr, 9},
    {"add", " + ", 5},     {"sub", " - ", 5},     {"mul", " * ", 6},      {"div", " / ", 6},
    {"mod", " % ", 6},     {"min", nullptr, 9},   {"max", nullptr, 9},    {"lt", " < ", 4},
    {"le", " <= ", 4},     {"eq", " == ", 4},     {"ne", " != ", 4},      {"and", " && ", 3},
    {"or", " || ", 2},     {"not", nullptr, 7},   {"select", nullptr, 9}, {"cast", nullptr, 9},
    {"neg", nullptr, 7},   {"exp", nullptr, 9},   {"log", nullptr, 9},    {"sqrt", nullptr, 9},
    {"rsqrt", nullptr, 9}, {"tanh", nullptr, 9},  {"erf", nullptr, 9},    {"sigmoid", nullptr, 9},
    {"abs", nullptr, 9},   {"pow", nullptr, 9},
};
static_assert(std::size(kOps) == static_cast<size_t>(Op::kPow) + 1);

const OpRow& RowOf(Op op) { return kOps[static_cast<int>(op)]; }

DType ResultType(Op op, const ExprList& args) {
  switch (op) {
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot:
      return DType::kBool;
    case Op::kSelect:
      return args[1]->type;
    default:
      return args[0]->type;
  }
}

}  // namespace

const char* NameOf(Op op) { return RowOf(op).name; }

bool IsFunction(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kLog:
    case Op::kSqrt:
    case Op::kRsqrt:
    case Op::kTanh:
    case Op::kErf:
    case Op::kSigmoid:
    case Op::kPow:
      return true;
    default:
      return false;
  }
}

namespace {

std::shared_ptr<ExprNode> NewNode(Op op, DType type) {
  auto node = MakeNode<ExprNode>();
  node->op = op;
  node->type = type;
  return node;
}

}  // namespace

Expr Int(int64_t value) {
  const auto make = [](int64_t v) {
    auto node = NewNode(Op::kInt, DType::kInt64);
    node->int_value = v;
    return node;
  };
  // The constants of most indices. Each thread has its own, whose counts no other thread touches
  // while it makes expressions.
  constexpr int64_t kSmall = 64;
  thread_local std::array<Expr, kSmall> small;
  if (value < 0 || value >= kSmall) return make(value);
  Expr& known = small[static_cast<size_t>(value)];
  if (known == nullptr) known = make(value);
  return known;
}

Expr Bool(bool value) {
  auto node = NewNode(Op::kInt, DType::kBool);
  node->int_value = value ? 1 : 0;
  return node;
}

Expr Float(double value, DType type) {
  auto node = NewNode(Op::kFloat, type);
  node->float_value = value;
  return node;
}

Expr VarExpr(const Var& var) {
  auto node = NewNode(Op::kVar, DType::kInt64);
  node->var = var;
  return node;
}

Expr Load(const BufferRef& buffer, ExprList indices, int lanes) {
  auto node = NewNode(Op::kLoad, buffer->dtype == DType::kInt32 ? DType::kInt64 : buffer->dtype);
  node->lanes = static_cast<int8_t>(lanes);
  node->buffer = buffer;
  node->args = std::move(indices);
  return node;
}

Expr ReadIndex(const BufferRef& buffer, ExprList indices) {
  const Expr last = Int(buffer->index_extent - 1);
  return MakeExpr(Op::kMax, {MakeExpr(Op::kMin, {Load(buffer, std::move(indices)), last}), Int(0)});
}

bool ReadsIndices(const Expr& e) {
  if (e->op == Op::kLoad) return e->type == DType::kInt64;
  return std::any_of(e->args.begin(), e->args.end(), ReadsIndices);
}

Expr MakeExpr(Op op, ExprList args) {
  auto node = NewNode(op, ResultType(op, args));
  node->args = std::move(args);
  return node;
}

Expr MakeBinary(Op op, Expr a, Expr b) {
  auto node = NewNode(op, a->type);
  node->args.push_back(std::move(a));
  node->args.push_back(std::move(b));
  node->type = ResultType(op, node->args);
  return node;
}

Expr Cast(DType type, Expr value) {
  auto node = NewNode(Op::kCast, type);
  node->args.push_back(std::move(value));
  return node;
}

Expr ToType(DType type, Expr value) {
  return value->type == type ? value : Cast(type, std::move(value));
}

Expr Select(Expr condition, Expr if_true, Expr if_false) {
  return MakeExpr(Op::kSelect, {std::move(condition), std::move(if_true), std::move(if_false)});
}

bool StructurallyEqual(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (a->op != b->op || a->type != b->type || a->lanes != b->lanes ||
      a->int_value != b->int_value || a->var != b->var || a->buffer != b->buffer ||
      a->args.size() != b->args.size()) {
    return false;
  }
  if (a->op == Op::kFloat && !(a->float_value == b->float_value) &&
      !(std::isnan(a->float_value) && std::isnan(b->float_value))) {
    return false;
  }
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (!StructurallyEqual(a->args[i], b->args[i])) return false;
  }
  return true;
}

void Visit(const Expr& e, absl::FunctionRef<void(const Expr&)> visit) {
  visit(e);
  for (const Expr& arg : e->args) Visit(arg, visit);
}

namespace {

void VisitNew(const Expr& e, absl::FunctionRef<void(const Expr&)> visit,
              absl::flat_hash_set<const ExprNode*>& visited) {
  if (IsShared(e) && !visited.insert(e.get()).second) return;
  visit(e);
  for (const Expr& arg : e->args) VisitNew(arg, visit, visited);
}

}  // namespace

void VisitDistinct(const Expr& e, absl::FunctionRef<void(const Expr&)> visit) {
  absl::flat_hash_set<const ExprNode*> visited;
  VisitNew(e, visit, visited);
}

namespace {

using Rewritten = absl::flat_hash_map<const ExprNode*, Expr>;

// Null when nothing changes, so that the counts of nodes that threads share stay alone. `done`:
// what became of nodes that stand in more than one place.
Expr RewriteOnce(const Expr& e, absl::FunctionRef<Expr(const Expr&)> rewrite, Rewritten& done) {
  const bool shared = IsShared(e);
  if (shared) {
    if (const auto known = done.find(e.get()); known != done.end()) return known->second;
  }
  std::shared_ptr<ExprNode> changed;
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr arg = RewriteOnce(e->args[i], rewrite, done);
    if (arg == nullptr || arg == e->args[i]) continue;
    if (changed == nullptr) changed = MakeNode<ExprNode>(*e);
    changed->args[i] = std::move(arg);
  }
  Expr current = std::move(changed);
  Expr replacement = rewrite(current != nullptr ? current : e);
  if (replacement == nullptr) replacement = std::move(current);
  if (shared) done.emplace(e.get(), replacement);
  return replacement;
}

}  // namespace

Expr Rewrite(const Expr& e, absl::FunctionRef<Expr(const Expr&)> rewrite) {
  Rewritten done;
  Expr rewritten = RewriteOnce(e, rewrite, done);
  return rewritten != nullptr ? rewritten : e;
}

Expr MapDecided(const Expr& e, absl::FunctionRef<Expr(const Expr&)> map) {
  std::shared_ptr<ExprNode> changed;
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr arg = map(e->args[i]);
    if (i == 0 && e->op == Op::kSelect && arg->op == Op::kInt) {
      return map(e->args[arg->int_value != 0 ? 1 : 2]);
    }
    if (arg == e->args[i]) continue;
    if (changed == nullptr) changed = MakeNode<ExprNode>(*e);
    changed->args[i] = std::move(arg);
  }
  return changed != nullptr ? Expr(changed) : e;
}

Expr Substitute(const Expr& e, absl::FunctionRef<Expr(const Var&)> replacement) {
  return Rewrite(e, [&](const Expr& node) -> Expr {
    return node->op == Op::kVar ? replacement(node->var) : nullptr;
  });
}

Expr Substitute(const Expr& e, absl::Span<const Var> variables, absl::Span<const Expr> values) {
  return Substitute(e, [&](const Var& v) -> Expr {
    const auto at = std::find(variables.begin(), variables.end(), v);
    return at == variables.end() ? nullptr : values[static_cast<size_t>(at - variables.begin())];
  });
}

namespace {

std::string FloatText(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (std::isnan(value)) return "nan";
  std::string text = absl::StrFormat("%.9g", value);
  if (std::strtod(text.c_str(), nullptr) != value) text = absl::StrFormat("%.17g", value);
  return text;
}

std::string Text(const Expr& e, int parent_precedence);

std::string ArgumentList(const ExprList& args) {
  std::string out;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ", ", Text(args[i], 0));
  }
  return out;
}

std::string Text(const Expr& e, int parent_precedence) {
  const OpRow& row = RowOf(e->op);
  std::string out;
  switch (e->op) {
    case Op::kInt:
      return e->type == DType::kBool ? (e->int_value ? "true" : "false")
                                     : absl::StrCat(e->int_value);
    case Op::kFloat:
      return FloatText(e->float_value);
    case Op::kVar:
      return e->var->name;
    case Op::kLoad:
      return absl::StrCat(e->buffer->name, "[", ArgumentList(e->args), "]",
                          e->lanes > 1 ? absl::StrCat(":", e->lanes) : "");
    case Op::kCast:
      return absl::StrCat(NameOf(e->type), "(", ArgumentList(e->args), ")");
    case Op::kNot:
    case Op::kNeg:
      out = absl::StrCat(e->op == Op::kNot ? "!" : "-", Text(e->args[0], row.precedence));
      break;
    default:
      if (row.infix == nullptr) return absl::StrCat(row.name, "(", ArgumentList(e->args), ")");
      out = absl::StrCat(Text(e->args[0], row.precedence), row.infix,
                         Text(e->args[1], row.precedence + 1));
  }
  return row.precedence < parent_precedence ? absl::StrCat("(", out, ")") : out;
}

}  // namespace

std::string ToString(const Expr& e) { return Text(e, 0); }

}  // namespace heddle::search_space
