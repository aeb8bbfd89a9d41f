#include <algorithm>

#include "base/math.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/make_node.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/expr/uniform.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {
namespace {

Expr AtZero(const Expr& e, const Var& var) { return SimplifyAt(e, var, Int(0)); }

// Are the lanes of the access consecutive and the first aligned?
bool IsWide(const Buffer& buffer, const ExprList& indices, const Var& lane) {
  const int64_t lanes = lane->extent;
  if (lanes * SizeOf(buffer.dtype) > 16) return false;
  if (std::none_of(indices.begin(), indices.end(),
                   [&](const Expr& index) { return MentionsAny(index, {lane.get()}); })) {
    return false;
  }
  if (buffer.swizzle != 0 && buffer.swizzle % lanes != 0) return false;
  Linear base = WeightedSum(indices, buffer.strides);  // in elements, without swizzle
  bool consecutive = false;
  for (auto t = base.terms.begin(); t != base.terms.end();) {
    if (!MentionsAny(t->x, {lane.get()})) {
      ++t;
      continue;
    }
    if (t->x->op != Op::kVar || t->div != 1 || t->mod != 0 || t->coef != 1) return false;
    consecutive = true;
    t = base.terms.erase(t);
  }
  if (!consecutive) return false;
  const ModRem m = ModulusRemainder(base);
  return m.remainder % lanes == 0 && m.modulus % lanes == 0;
}

// One vector loop over Ifs and a store.
class LoopVectorizer {
 public:
  explicit LoopVectorizer(const Var& lane) : lane_(lane) {}

  // Null when nothing becomes wide.
  Stmt Run(const Stmt& body) {
    Expr condition;
    Stmt store = body;
    for (; store->kind == StmtNode::Kind::kIf; store = store->body[0]) {
      condition = AndAlso(condition, store->condition);
    }
    if (store->buffer == nullptr) return nullptr;
    Expr inside, whole = store->value;
    if (store->kind == StmtNode::Kind::kStore) whole = WithoutGuards(store->value, inside);
    if (inside != nullptr || (condition != nullptr && !IsUniform(condition, lane_))) {
      return WithTail(condition, inside, store, whole);
    }
    return Wide(condition, store);
  }

 private:
  Stmt Wide(const Expr& condition, const Stmt& store) {
    auto wide = MakeNode<StmtNode>(*store);
    const bool is_update =
        store->kind == StmtNode::Kind::kIntrin && store->intrinsic == Intrinsic::kAtomicCombine;
    const bool is_async = store->kind == StmtNode::Kind::kIntrin && !is_update;
    if (!is_update) wide->value = Widen(store->value);
    if (IsWide(*store->buffer, store->indices, lane_)) {
      wide->lanes = static_cast<int>(lane_->extent);
      any_ = any_ || !is_async;
    }
    // A copy is wide on both sides or on none.
    if (is_async && (wide->lanes == 1 || !AllLoadsWide(wide->value))) return nullptr;
    if (!any_) return nullptr;
    Stmt out = For(lane_, ForKind::kVector, wide);
    return condition == nullptr ? out : If(AtZero(condition, lane_), out);
  }

  // Of conditions that hold for the first lanes up to some, as at the end of an array of an odd
  // length: all lanes at once where they hold for the last one, and else one by one. `whole` is the
  // value where `inside` holds. Where that makes no access of memory wide the guards stay.
  Stmt WithTail(const Expr& condition, const Expr& inside, const Stmt& store, const Expr& whole) {
    if (store->kind != StmtNode::Kind::kStore ||
        (condition != nullptr && !HoldsUpToALaneEach(condition))) {
      return nullptr;
    }
    auto unguarded = MakeNode<StmtNode>(*store);
    unguarded->value = whole;
    const Stmt wide = Wide(nullptr, unguarded);
    if (wide == nullptr || !HasWideAccess(wide->body[0])) {
      const bool is_uniform = condition == nullptr || IsUniform(condition, lane_);
      return is_uniform ? LoopVectorizer(lane_).Wide(condition, store) : nullptr;
    }
    const Expr all = SimplifyAt(AndAlso(condition, inside), lane_, Int(lane_->extent - 1));
    const Stmt each = condition == nullptr ? store : If(condition, store);
    return Seq({If(all, wide), IfRarely(Simplify(MakeExpr(Op::kNot, {all})),
                                        For(lane_, ForKind::kUnrolled, each))});
  }
  // The value where all loads are inside that are zero past an end inside the lanes; adds to
  // `inside` where that is, which is asked in front of everything else: not what itself loads
  // something, perhaps where that may be loaded alone.
  Expr WithoutGuards(const Expr& e, Expr& inside) const {
    if (IsGuarded(e) && e->args[1]->op == Op::kLoad) {
      const bool loads = ReadsMemory(e->args[0]);
      if (loads || IsUniform(e->args[0], lane_) || !HoldsUpToALaneEach(e->args[0])) return e;
      inside = AndAlso(inside, e->args[0]);
      return e->args[1];
    }
    std::shared_ptr<ExprNode> changed;
    for (size_t i = 0; i < e->args.size(); ++i) {
      Expr arg = WithoutGuards(e->args[i], inside);
      if (arg == e->args[i]) continue;
      if (changed == nullptr) changed = MakeNode<ExprNode>(*e);
      changed->args[i] = std::move(arg);
    }
    return changed != nullptr ? Expr(changed) : e;
  }
  bool HoldsUpToALaneEach(const Expr& condition) const {
    const std::vector<Expr> all = Conjuncts(condition);
    return std::all_of(all.begin(), all.end(),
                       [&](const Expr& c) { return IsUniform(c, lane_) || HoldsUpToALane(c); });
  }
  // Of memory: registers are as good one by one.
  static bool HasWideAccess(const Stmt& store) {
    bool found = store->lanes > 1 && store->buffer->scope != Scope::kLocal;
    Visit(store->value, [&](const Expr& e) {
      found = found || (e->op == Op::kLoad && e->lanes > 1 && e->buffer->scope != Scope::kLocal);
    });
    return found;
  }
  // Is it a comparison that can only become false as the lane grows?
  bool HoldsUpToALane(const Expr& c) const {
    if ((c->op != Op::kLt && c->op != Op::kLe) || c->args[0]->type != DType::kInt64) return false;
    const Inequality sum = MakeInequality(c->op, c->args[0], c->args[1]);
    return std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& t) {
      return !MentionsAny(t.x, {lane_.get()}) || (t.x->op == Op::kVar && t.mod == 0 && t.coef > 0);
    });
  }

  // Of what the lanes read, not of the indices that say where, or conditions, which they share.
  bool AllLoadsWide(const Expr& e) const {
    bool all = true;
    Visit(e, [&](const Expr& node) {
      if (node->op != Op::kLoad || !MentionsAny(node, {lane_.get()})) return;
      all = all && node->lanes == lane_->extent;
    });
    return all;
  }

  Expr Widen(const Expr& e) {
    if (e->op == Op::kLoad) {
      if (!IsWide(*e->buffer, e->args, lane_)) return e;
      any_ = true;
      return Load(e->buffer, e->args, static_cast<int>(lane_->extent));
    }
    if (e->op == Op::kSelect) {
      // Lanes of a wide load stand or fall together.
      if (!IsUniform(e->args[0], lane_)) {
        return Select(Widen(e->args[0]), e->args[1], e->args[2]);
      }
      return Select(AtZero(e->args[0], lane_), Widen(e->args[1]), Widen(e->args[2]));
    }
    if (e->op == Op::kAnd || e->op == Op::kOr) return e;  // the second of two decides nothing alone
    std::shared_ptr<ExprNode> changed;
    for (size_t i = 0; i < e->args.size(); ++i) {
      Expr arg = Widen(e->args[i]);
      if (arg == e->args[i]) continue;
      if (changed == nullptr) changed = MakeNode<ExprNode>(*e);
      changed->args[i] = std::move(arg);
    }
    return changed != nullptr ? Expr(changed) : e;
  }

  const Var lane_;
  bool any_ = false;
};

// A store instead of an asynchronous copy that is too narrow for the device's instruction: as good
// as a copy that completes early.
Stmt AtOnce(const Stmt& s) {
  const bool copies = s->kind == StmtNode::Kind::kIntrin && s->intrinsic == Intrinsic::kAsyncCopy;
  if (!copies || s->lanes * SizeOf(s->buffer->dtype) >= kLeastAsyncBytes) return nullptr;
  return Store(s->buffer, s->indices, s->value, s->lanes);
}

}  // namespace

Stmt VectorizeAccesses(const Stmt& body) {
  const Stmt wide = RewriteStmt(
      body,
      [](const Stmt& s) -> Stmt {
        if (s->kind != StmtNode::Kind::kFor || s->for_kind != ForKind::kVector) return nullptr;
        Stmt wide = LoopVectorizer(s->var).Run(s->body[0]);
        return wide != nullptr ? wide : For(s->var, ForKind::kUnrolled, s->body[0]);
      },
      nullptr);
  return RewriteStmt(wide, AtOnce, nullptr);
}

}  // namespace heddle::search_space
