#include "measure/moving_pointers.h"

#include <set>

#include "search_space/linear.h"

namespace heddle::measure {
namespace {

using search_space::Buffer;
using search_space::BufferRef;
using search_space::Expr;
using search_space::Linear;
using search_space::Op;
using search_space::Scope;
using search_space::Stmt;
using search_space::StmtNode;
using search_space::Term;
using search_space::Var;

// Each takes two registers.
constexpr size_t kMostPointers = 8;

class Mover {
 public:
  Mover(const StmtNode& loop, std::vector<MovingPointer>& pointers)
      : loop_(loop), pointers_(pointers) {
    if (loop.rotating != nullptr) inside_.insert(loop.rotating.get());
    VisitStmts(loop.body[0], [&](const StmtNode& s) {
      if (s.var != nullptr) inside_.insert(s.var.get());
      if (s.rotating != nullptr) inside_.insert(s.rotating.get());
    });
  }

  Stmt Run() {
    return RewriteStmt(
        loop_.body[0],
        [&](const Stmt& s) -> Stmt {
          if (s->kind != StmtNode::Kind::kStore) return nullptr;
          auto moved = std::make_shared<StmtNode>(*s);
          moved->value = Move(s->value, false);
          return moved;
        },
        nullptr);
  }

 private:
  Expr Move(const Expr& e, bool guarded) {
    auto out = std::make_shared<search_space::ExprNode>(*e);
    if (e->op == Op::kSelect && !guarded) {
      const bool zero = e->args[2]->op == Op::kFloat && e->args[2]->float_value == 0;
      if (zero && e->args[1]->op == Op::kLoad) {
        out->args[1] = MoveLoad(e->args[1]);
        return out;
      }
    }
    for (Expr& arg : out->args) arg = Move(arg, guarded || e->op == Op::kSelect);
    return out;
  }

  bool Mentions(const Term& t, bool inside) const {
    bool found = false;
    Visit(t.x, [&](const Expr& node) {
      if (node->op == Op::kLoad) found = true;
      if (node->op != Op::kVar) return;
      found = found || (inside ? inside_.count(node->var.get()) != 0 : node->var == loop_.var);
    });
    return found;
  }

  Expr MoveLoad(const Expr& load) {
    const Buffer& buffer = *load->buffer;
    if (buffer.scope != Scope::kGlobal) return load;
    Linear offset;
    for (size_t i = 0; i < load->args.size(); ++i) {
      offset = Add(offset, search_space::ToLinear(load->args[i]), buffer.strides[i]);
    }
    Linear start, rest;
    rest.constant = offset.constant;
    int64_t step = 0;
    for (const Term& t : offset.terms) {
      if (Mentions(t, false)) {
        if (t.x->op != Op::kVar || t.div != 1 || t.mod != 0) return load;
        step = t.coef;
      } else {
        (Mentions(t, true) ? rest : start).terms.push_back(t);
      }
    }
    if (step == 0) return load;
    const BufferRef pointer = PointerFor(load->buffer, FromLinear(start), step);
    return pointer == nullptr ? load : Load(pointer, {FromLinear(rest)}, load->lanes);
  }

  BufferRef PointerFor(const BufferRef& buffer, const Expr& start, int64_t step) {
    for (const MovingPointer& p : pointers_) {
      if (p.buffer == buffer && p.step == step && StructurallyEqual(p.start, start)) {
        return p.pointer;
      }
    }
    if (pointers_.size() == kMostPointers) return nullptr;
    Buffer pointer = *buffer;
    pointer.shape = {buffer->elements};
    pointer.strides = {1};
    pointers_.push_back({std::make_shared<const Buffer>(std::move(pointer)), buffer, start, step});
    return pointers_.back().pointer;
  }

  const StmtNode& loop_;
  std::vector<MovingPointer>& pointers_;
  std::set<const search_space::Variable*> inside_;  // variables bound in the loop
};

}  // namespace

Stmt MovePointers(const StmtNode& loop, std::vector<MovingPointer>& pointers) {
  return Mover(loop, pointers).Run();
}

}  // namespace heddle::measure
