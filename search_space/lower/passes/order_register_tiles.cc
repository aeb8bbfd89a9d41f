#include <vector>

#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {
namespace {

bool IsRegister(const Expr& e) {
  return e->op == Op::kLoad && e->lanes == 1 && e->buffer->scope == Scope::kLocal;
}

// Of the form acc[i] = acc[i] + a[j] * b[k], all in registers: {a[j], b[k]}, else nothing.
ExprList OperandsOf(const Stmt& s) {
  if (s->kind != StmtNode::Kind::kStore || s->lanes != 1 || s->value->op != Op::kAdd) return {};
  const Expr accumulator = Load(s->buffer, s->indices);
  for (size_t i : {0, 1}) {
    const Expr product = s->value->args[1 - i];
    if (product->op == Op::kMul && IsRegister(product->args[0]) && IsRegister(product->args[1]) &&
        IsRegister(s->value->args[i]) && StructurallyEqual(s->value->args[i], accumulator)) {
      return product->args;
    }
  }
  return {};
}

Stmt Nest(const std::vector<Var>& loops, const Expr& backward, Stmt body) {
  for (size_t i = loops.size(); i-- > 0;) {
    auto loop = std::make_shared<StmtNode>(*For(loops[i], ForKind::kUnrolled, std::move(body)));
    loop->condition = backward;
    body = std::move(loop);
  }
  return body;
}

// The nest in its new order; null where `s` does not start one.
Stmt InSerpentine(const Stmt& s) {
  std::vector<Var> loops;
  Stmt inner = s;
  while (inner->kind == StmtNode::Kind::kFor && inner->for_kind == ForKind::kUnrolled &&
         inner->condition == nullptr) {
    loops.push_back(inner->var);
    inner = inner->body[0];
  }
  if (loops.size() < 2) return nullptr;
  const ExprList operands = OperandsOf(inner);
  if (operands.empty()) return nullptr;
  std::vector<Var> both, of_first, of_second;
  for (const Var& v : loops) {
    const bool first = MentionsAny(operands[0], {v.get()});
    const bool second = MentionsAny(operands[1], {v.get()});
    if (!first && !second) return nullptr;
    (first && second ? both : first ? of_first : of_second).push_back(v);
  }
  // The shorter side turns: either was tried, and this is faster for most schedules
  // (docs/notebook.md).
  const bool first_turns = ExtentOf(of_first) <= ExtentOf(of_second);
  const std::vector<Var>& turning = first_turns ? of_first : of_second;
  const std::vector<Var>& held = first_turns ? of_second : of_first;
  if (ExtentOf(turning) == 1) return nullptr;
  Expr count = Int(0);
  for (const Var& v : held) count = count * Int(v->extent) + VarExpr(v);
  return Nest(both, nullptr, Nest(held, nullptr, Nest(turning, Simplify(count % Int(2)), inner)));
}

}  // namespace

// From the outside in, so that a nest is seen whole.
Stmt OrderRegisterTiles(const Stmt& body) {
  if (Stmt ordered = InSerpentine(body); ordered != nullptr) return ordered;
  std::shared_ptr<StmtNode> changed;
  for (size_t i = 0; i < body->body.size(); ++i) {
    Stmt child = OrderRegisterTiles(body->body[i]);
    if (child == body->body[i]) continue;
    if (changed == nullptr) changed = std::make_shared<StmtNode>(*body);
    changed->body[i] = std::move(child);
  }
  return changed != nullptr ? changed : body;
}

}  // namespace heddle::search_space
