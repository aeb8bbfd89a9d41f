#include "measure/codegen/moving_pointers.h"

#include <optional>
#include <set>

#include "search_space/ir/linear.h"

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

// Of those that move: each takes two registers.
constexpr size_t kMostPointers = 8;

// Beyond this an offset's range is not known.
constexpr int64_t kMostOffset = int64_t{1} << 48;

class Mover {
 public:
  Mover(const StmtNode& loop, std::vector<MovingPointer>& pointers, bool unrolled)
      : loop_(loop), pointers_(pointers), unrolled_(unrolled) {
    if (unrolled) inside_.insert(loop.var.get());
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
          const bool copies = s->kind == StmtNode::Kind::kIntrin && s->value != nullptr;
          if (s->kind != StmtNode::Kind::kStore && !(unrolled_ && copies)) return nullptr;
          auto moved = std::make_shared<StmtNode>(*s);
          if (!unrolled_) {
            moved->value = Move(s->value, false);
            return moved;
          }
          moved->value = Fix(s->value, copies);
          if (const auto to = Relative(s->buffer, s->indices, true, false)) {
            moved->buffer = to->pointer;
            moved->indices = {to->offset};
          }
          return moved;
        },
        nullptr);
  }

 private:
  struct Place {
    BufferRef pointer;
    Expr offset;
  };

  Expr Move(const Expr& e, bool guarded) {
    auto out = std::make_shared<search_space::ExprNode>(*e);
    if (e->op == Op::kSelect && !guarded) {
      const bool zero = e->args[2]->op == Op::kFloat && e->args[2]->float_value == 0;
      if (zero && e->args[1]->op == Op::kLoad) {
        if (e->args[1]->buffer->scope == Scope::kGlobal) out->args[1] = Through(e->args[1], false);
        return out;
      }
    }
    for (Expr& arg : out->args) arg = Move(arg, guarded || e->op == Op::kSelect);
    return out;
  }

  Expr Fix(const Expr& e, bool by_offset) {
    if (e->op == Op::kLoad) return Through(e, by_offset);
    if (e->args.empty()) return e;
    auto out = std::make_shared<search_space::ExprNode>(*e);
    for (Expr& arg : out->args) arg = Fix(arg, by_offset || e->op == Op::kSelect);
    return out;
  }

  Expr Through(const Expr& load, bool by_offset) {
    const auto from = Relative(load->buffer, load->args, false, by_offset);
    return from ? Load(from->pointer, {from->offset}, load->lanes) : load;
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

  // The same element, counted from a pointer; none where no pointer helps.
  std::optional<Place> Relative(const BufferRef& buffer, const search_space::ExprList& indices,
                                bool written, bool by_offset) {
    if (buffer->scope == Scope::kLocal || buffer->swizzle != 0) return std::nullopt;
    Linear offset;
    for (size_t i = 0; i < indices.size(); ++i) {
      offset = Add(offset, search_space::ToLinear(indices[i]), buffer->strides[i]);
    }
    Linear start, rest;
    rest.constant = offset.constant;
    int64_t step = 0;
    for (const Term& t : offset.terms) {
      if (!unrolled_ && Mentions(t, false)) {
        if (t.x->op != Op::kVar || t.div != 1 || t.mod != 0) return std::nullopt;
        step = t.coef;
      } else {
        (Mentions(t, true) ? rest : start).terms.push_back(t);
      }
    }
    const auto plain = [](const Term& t) {
      return t.x->op == Op::kVar && t.div == 1 && t.mod == 0 && t.coef == 1;
    };
    const size_t terms = start.terms.size();
    const bool helps = unrolled_ ? terms > 1 || (terms == 1 && !plain(start.terms[0])) : step != 0;
    if (!helps) return std::nullopt;
    const MovingPointer* const p = PointerFor(buffer, FromLinear(start), step, written, by_offset);
    if (p == nullptr) return std::nullopt;
    const Expr element = FromLinear(rest);
    return Place{p->pointer, by_offset ? VarExpr(p->offset) + element : element};
  }

  // Null where none can be had.
  const MovingPointer* PointerFor(const BufferRef& buffer, const Expr& start, int64_t step,
                                  bool written, bool by_offset) {
    for (MovingPointer& p : pointers_) {
      if (p.buffer == buffer && p.step == step && StructurallyEqual(p.start, start) &&
          (p.offset != nullptr) == by_offset) {
        p.written = p.written || written;
        return &p;
      }
    }
    const search_space::Interval range = BoundsOf(start);
    if (by_offset && (range.min < 0 || range.max >= kMostOffset)) return nullptr;
    if (!unrolled_ && pointers_.size() == kMostPointers) return nullptr;
    Buffer pointer = *buffer;
    pointer.shape = {buffer->elements};
    pointer.strides = {1};
    pointers_.push_back({std::make_shared<const Buffer>(std::move(pointer)), buffer, start, step,
                         written,
                         by_offset ? search_space::MakeVar(buffer->name, range.max + 1) : nullptr});
    return &pointers_.back();
  }

  const StmtNode& loop_;
  std::vector<MovingPointer>& pointers_;
  const bool unrolled_;
  std::set<const search_space::Variable*> inside_;  // variables bound in the loop
};

}  // namespace

Stmt MovePointers(const StmtNode& loop, std::vector<MovingPointer>& pointers) {
  return Mover(loop, pointers, false).Run();
}

Stmt FixPointers(const StmtNode& loop, std::vector<MovingPointer>& pointers) {
  return Mover(loop, pointers, true).Run();
}

}  // namespace heddle::measure
