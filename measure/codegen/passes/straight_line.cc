#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "measure/codegen/passes/passes.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::measure {
namespace {

using search_space::Expr;
using search_space::ForKind;
using search_space::Op;
using search_space::Scope;
using search_space::Stmt;
using search_space::StmtNode;
using search_space::Var;

// Twice the accumulators that a thread has room for.
constexpr int64_t kMostStatements = 512;

bool IsUpdate(const StmtNode& s) {
  bool registers = s.buffer->scope == Scope::kLocal, old = false;
  Visit(s.value, [&](const Expr& e) {
    if (e->op != Op::kLoad) return;
    registers = registers && e->buffer->scope == Scope::kLocal;
    old = old || e->buffer == s.buffer;
  });
  return registers && old;
}

bool MentionsOnly(const Expr& e, const std::vector<Var>& vars) {
  bool only = true;
  Visit(e, [&](const Expr& node) {
    only = only && node->op != Op::kLoad &&
           (node->op != Op::kVar || std::find(vars.begin(), vars.end(), node->var) != vars.end());
  });
  return only;
}

// How many statements the nest inside the loops `around` has; beyond kMostStatements where it is
// not one to write out.
int64_t StatementsOf(const Stmt& s, std::vector<Var>& around) {
  constexpr int64_t kOther = kMostStatements + 1;
  if (s->kind == StmtNode::Kind::kStore) return IsUpdate(*s) ? 1 : kOther;
  const bool loop = s->kind == StmtNode::Kind::kFor && s->rotating == nullptr &&
                    (s->condition == nullptr || MentionsOnly(s->condition, around));
  if (!loop && s->kind != StmtNode::Kind::kSeq) return kOther;
  int64_t count = 0;
  if (loop) around.push_back(s->var);
  for (const Stmt& child : s->body) {
    count = std::min(kOther, count + StatementsOf(child, around));
  }
  if (!loop) return count;
  around.pop_back();
  return count * std::min(kOther, s->var->extent);
}

Stmt Fixed(const Stmt& s, const Var& var, int64_t value) {
  return RewriteStmt(s, nullptr, [&](const Expr& e) {
    return Substitute(e,
                      [&](const Var& v) { return v == var ? search_space::Int(value) : nullptr; });
  });
}

void Append(const Stmt& s, std::vector<Stmt>& out) {
  if (s->kind == StmtNode::Kind::kStore) {
    out.push_back(s);
  } else if (s->kind == StmtNode::Kind::kSeq) {
    for (const Stmt& child : s->body) Append(child, out);
  } else {
    Expr direction = s->condition == nullptr ? nullptr : Simplify(s->condition);
    assert(direction == nullptr || direction->op == Op::kInt);  // IsStraightLine
    const bool backwards = direction != nullptr && direction->int_value != 0;
    const int64_t extent = s->var->extent;
    for (int64_t i = 0; i < extent; ++i) {
      Append(Fixed(s->body[0], s->var, backwards ? extent - 1 - i : i), out);
    }
  }
}

bool IsStraightLine(const Stmt& loop) {
  std::vector<Var> around;
  return StatementsOf(loop, around) <= kMostStatements;
}

Stmt StraightLine(const Stmt& nest) {
  std::string loops;
  for (const StmtNode* s = nest.get(); s->kind == StmtNode::Kind::kFor; s = s->body[0].get()) {
    if (s->var->extent == 1) continue;
    absl::StrAppend(&loops, loops.empty() ? "" : ", ", s->var->name, " < ", s->var->extent,
                    s->condition != nullptr ? " to and fro" : "");
  }
  std::vector<Stmt> out = {search_space::Comment(absl::StrCat("Unrolled: ", loops))};
  Append(nest, out);
  return search_space::Seq(std::move(out));
}

// `in_unrolled`: the next loop around is unrolled and stays a loop.
Stmt WriteOut(const Stmt& s, bool in_unrolled) {
  if (s->kind == StmtNode::Kind::kFor && s->for_kind != ForKind::kVector && s->var->extent > 1) {
    const bool straight = s->for_kind == ForKind::kUnrolled && IsStraightLine(s);
    if (straight && in_unrolled) return StraightLine(s);
    in_unrolled = s->for_kind == ForKind::kUnrolled && !straight;
  }
  return RewriteBodies(s, [&](const Stmt& child) { return WriteOut(child, in_unrolled); });
}

}  // namespace

Stmt WriteOutUpdates(const Stmt& body) { return WriteOut(body, false); }

}  // namespace heddle::measure
