#include <array>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "measure/codegen/passes/passes.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/make_node.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::measure {
namespace {

using search_space::Buffer;
using search_space::BufferRef;
using search_space::Expr;
using search_space::ForKind;
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

// What stands before a loop: a pointer into `base`, or a named offset.
struct Pointer {
  BufferRef pointer;  // stands for `base` in the rewritten accesses, which have one index
  BufferRef base;
  Expr start;    // element of `base` in the first iteration
  int64_t step;  // elements from one iteration to the next; 0 = stands still
  Var offset;    // not null: named `start`, and `pointer` is another view of `base` itself
};

// Of one loop: the pointers before it and its body made relative to them.
class Mover {
 public:
  Mover(const StmtNode& loop, bool unrolled) : loop_(loop), unrolled_(unrolled) {
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
          // Products go by descriptors of whole buffers, bulk copies by those of whole tensors.
          const bool copies = s->kind == StmtNode::Kind::kIntrin && s->value != nullptr &&
                              EffectsOf(s->intrinsic).writes_buffer &&
                              !search_space::RunsInBackground(*s);
          if (s->kind != StmtNode::Kind::kStore && !(unrolled_ && copies)) return nullptr;
          auto moved = MakeNode<StmtNode>(*s);
          moved->value = Moved(s->value, copies);
          if (!unrolled_) return moved;
          if (const auto to = Relative(s->buffer, s->indices, false)) {
            moved->buffer = to->pointer;
            moved->indices = {to->offset};
          }
          return moved;
        },
        nullptr);
  }

  // Around `loop`, in the order in which they were needed.
  Stmt Declare(Stmt loop) const {
    for (size_t i = pointers_.size(); i-- > 0;) {
      const Pointer& p = pointers_[i];
      const bool view = p.offset != nullptr;
      loop = LetPointer(p.pointer, p.base, view ? search_space::Int(0) : p.start, p.step, loop);
      if (view) loop = Let(p.offset, p.start, loop);
    }
    return loop;
  }

 private:
  struct Place {
    BufferRef pointer;
    Expr offset;
  };

  // `chosen`: inside a select or an asynchronous copy.
  Expr Moved(const Expr& e, bool chosen) {
    if (!IsShared(e)) return unrolled_ ? Fix(e, chosen) : Move(e, chosen);
    Expr& known = moved_[chosen ? 1 : 0][e.get()];
    if (known == nullptr) known = unrolled_ ? Fix(e, chosen) : Move(e, chosen);
    return known;
  }

  Expr Move(const Expr& e, bool chosen) {
    if (e->op == Op::kSelect && !chosen && e->args[1]->op == Op::kLoad) {
      const bool zero = e->args[2]->op == Op::kFloat && e->args[2]->float_value == 0;
      if (zero && e->args[1]->buffer->scope != Scope::kGlobal) return e;
      if (zero) return WithArguments(e, {e->args[0], Through(e->args[1], false), e->args[2]});
    }
    return Descend(e, chosen);
  }

  Expr Fix(const Expr& e, bool chosen) {
    return e->op == Op::kLoad ? Through(e, chosen) : Descend(e, chosen);
  }

  Expr Descend(const Expr& e, bool chosen) {
    search_space::ExprList args;
    for (const Expr& arg : e->args) args.push_back(Moved(arg, chosen || e->op == Op::kSelect));
    return WithArguments(e, std::move(args));
  }

  static Expr WithArguments(const Expr& e, search_space::ExprList args) {
    if (args == e->args) return e;
    auto out = search_space::MakeNode<search_space::ExprNode>(*e);
    out->args = std::move(args);
    return out;
  }

  Expr Through(const Expr& load, bool by_offset) {
    const auto from = Relative(load->buffer, load->args, by_offset);
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
                                bool by_offset) {
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
    const Pointer* const p = PointerFor(buffer, FromLinear(start), step, by_offset);
    if (p == nullptr) return std::nullopt;
    const Expr element = FromLinear(rest);
    return Place{p->pointer, by_offset ? VarExpr(p->offset) + element : element};
  }

  // Null where none can be had.
  const Pointer* PointerFor(const BufferRef& buffer, const Expr& start, int64_t step,
                            bool by_offset) {
    for (const Pointer& p : pointers_) {
      if (p.base == buffer && p.step == step && StructurallyEqual(p.start, start) &&
          (p.offset != nullptr) == by_offset) {
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
                         by_offset ? search_space::MakeVar(buffer->name, range.max + 1) : nullptr});
    return &pointers_.back();
  }

  const StmtNode& loop_;
  const bool unrolled_;
  std::set<const search_space::Variable*> inside_;  // variables bound in the loop
  std::vector<Pointer> pointers_;
  // Nodes that stand in several places, by `chosen`.
  std::array<std::unordered_map<const search_space::ExprNode*, Expr>, 2> moved_;
};

Stmt Count(const Stmt& s, bool in_unrolled) {
  // Pointers move from each iteration to the next one of all.
  const bool loop =
      s->kind == StmtNode::Kind::kFor && s->for_kind != ForKind::kVector && s->value == nullptr;
  const bool unrolled = loop && s->for_kind == ForKind::kUnrolled;
  // What is in an unrolled nest is relative to pointers already.
  if (!loop || s->var->extent == 1 || (unrolled && in_unrolled)) {
    return RewriteBodies(s, [&](const Stmt& child) { return Count(child, in_unrolled); });
  }
  Mover mover(*s, unrolled);
  auto moved = MakeNode<StmtNode>(*s);
  moved->body[0] = Count(mover.Run(), in_unrolled || unrolled);
  return mover.Declare(moved);
}

}  // namespace

Stmt CountFromPointers(const Stmt& body) { return Count(body, false); }

}  // namespace heddle::measure
