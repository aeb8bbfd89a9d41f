#include <algorithm>

#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/kernel_context.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {
namespace {

// Trips of a loop that is written out.
constexpr int64_t kMaxExpanded = 32;

// Is `e` a number for every value of `var`, and does it depend on nothing else?
bool IsDecidedBy(const Expr& e, const Var& var) {
  bool only = MentionsAny(e, {var.get()});
  Visit(e, [&](const Expr& node) {
    only = only && node->op != Op::kLoad && (node->op != Op::kVar || node->var == var);
  });
  return only;
}

bool DecidesSelects(const Expr& e, const Var& var) {
  if (e->type == DType::kInt64) return false;
  return (e->op == Op::kSelect && IsDecidedBy(e->args[0], var)) ||
         std::any_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return DecidesSelects(arg, var); });
}

bool DecidesSelects(const Stmt& body, const Var& var) {
  bool decides = false;
  VisitStmts(body, [&](const StmtNode& s) {
    VisitExprs(s, [&](const Expr& e) { decides = decides || DecidesSelects(e, var); });
  });
  return decides;
}

}  // namespace

Stmt ExpandDecidingLoops(const Stmt& body) {
  return RewriteStmt(
      body,
      [](const Stmt& s) -> Stmt {
        if (s->kind != StmtNode::Kind::kFor || s->for_kind != ForKind::kUnrolled ||
            s->var->extent > kMaxExpanded || !DecidesSelects(s->body[0], s->var)) {
          return nullptr;
        }
        std::vector<Stmt> copies;
        for (int64_t i = 0; i < s->var->extent; ++i) {
          copies.push_back(ReplaceVar(s->body[0], s->var, Int(i)));
        }
        return Seq(std::move(copies));
      },
      nullptr);
}

}  // namespace heddle::search_space
