#include "measure/straight_line.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "search_space/simplify.h"

namespace heddle::measure {
namespace {

using search_space::Expr;
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

// How many statements the nest has; beyond kMostStatements where it is not one to write out.
int64_t StatementsOf(const Stmt& s) {
  constexpr int64_t kOther = kMostStatements + 1;
  if (s->kind == StmtNode::Kind::kStore) return IsUpdate(*s) ? 1 : kOther;
  const bool loop = s->kind == StmtNode::Kind::kFor && s->rotating == nullptr;
  if (!loop && s->kind != StmtNode::Kind::kSeq) return kOther;
  int64_t count = 0;
  for (const Stmt& child : s->body) count = std::min(kOther, count + StatementsOf(child));
  return loop ? count * std::min(kOther, s->var->extent) : count;
}

Stmt Fixed(const Stmt& s, const Var& var, int64_t value) {
  return RewriteStmt(s, nullptr, [&](const Expr& e) {
    return Substitute(e,
                      [&](const Var& v) { return v == var ? search_space::Int(value) : nullptr; });
  });
}

// False where the order of a loop's iterations is not known.
bool Append(const Stmt& s, std::vector<Stmt>& out) {
  if (s->kind == StmtNode::Kind::kStore) {
    out.push_back(s);
    return true;
  }
  if (s->kind == StmtNode::Kind::kSeq) {
    for (const Stmt& child : s->body) {
      if (!Append(child, out)) return false;
    }
    return true;
  }
  const int64_t extent = s->var->extent;
  bool backwards = false;
  if (s->condition != nullptr) {
    const Expr condition = Simplify(s->condition);
    if (condition->op != Op::kInt) return false;
    backwards = condition->int_value != 0;
  }
  for (int64_t i = 0; i < extent; ++i) {
    if (!Append(Fixed(s->body[0], s->var, backwards ? extent - 1 - i : i), out)) return false;
  }
  return true;
}

}  // namespace

Stmt StraightLine(const Stmt& loop) {
  std::vector<Stmt> out;
  if (StatementsOf(loop) > kMostStatements || !Append(loop, out)) return nullptr;
  return search_space::Seq(std::move(out));
}

}  // namespace heddle::measure
