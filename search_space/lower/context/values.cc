#include "search_space/lower/context/values.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/make_node.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/held.h"
#include "search_space/schedule/analysis/tails.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/row_fragment.h"
#include "search_space/schedule/threads/dealt_axis.h"

namespace heddle::search_space {
namespace {

// What holds where an expression stands, and what became of its nodes that stand in several
// places: it is the same wherever nothing else is known about their variables.
struct Known {
  Assumptions assumptions;
  Variables concerned;      // by the last assumption
  Known* around = nullptr;  // what holds without the last assumption
  absl::flat_hash_map<const ExprNode*, Expr> resolved;
};

class Resolver {
 public:
  explicit Resolver(KernelContext& context) : context_(context) {}

  Expr Resolve(const Expr& e, Known& known) {
    if (!IsShared(e)) return ResolveNode(e, known);
    for (Known* k = &known; k != nullptr; k = k->around) {
      if (const auto done = k->resolved.find(e.get()); done != k->resolved.end()) {
        return done->second;
      }
    }
    Known* k = &known;
    while (k->around != nullptr && !MentionsAny(e, k->concerned)) k = k->around;
    Expr resolved = ResolveNode(e, *k);
    k->resolved.emplace(e.get(), resolved);
    return resolved;
  }

 private:
  Expr ResolveNode(const Expr& e, Known& known);
  Expr ResolveIndex(const Expr& e, const Known& known);
  Expr ResolveLoad(const Expr& load, Known& known);
  Expr FromStorage(const Expr& load, const ScheduledStage& producer,
                   const KernelContext::Storage& storage);
  Expr ResolveSelect(const Expr& e, Known& known);

  KernelContext& context_;
};

Expr Resolver::ResolveNode(const Expr& e, Known& known) {
  if (e->op == Op::kLoad) return ResolveLoad(e, known);
  const bool compares_indices = e->args.size() == 2 && e->args[0]->type == DType::kInt64;
  if (e->type == DType::kInt64 || (compares_indices && e->type == DType::kBool)) {
    return ResolveIndex(e, known);
  }
  if (e->op == Op::kSelect) return ResolveSelect(e, known);
  std::shared_ptr<ExprNode> changed;
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr arg = Resolve(e->args[i], known);
    if (arg == e->args[i]) continue;
    if (changed == nullptr) changed = MakeNode<ExprNode>(*e);
    changed->args[i] = std::move(arg);
  }
  return changed != nullptr ? Expr(changed) : e;
}

// Beyond the end of an input of indices, in the tail of a split, another of its elements is read:
// what comes of it is not used.
Expr Resolver::ResolveIndex(const Expr& e, const Known& known) {
  if (!ReadsIndices(e)) return Simplify(e);
  return Simplify(Rewrite(e, [&](const Expr& node) -> Expr {
    if (node->op != Op::kLoad) return nullptr;
    const int producer = context_.schedule.FindStage(node->buffer.get());
    if (const auto copy = context_.storage.find(producer); copy != context_.storage.end()) {
      return FromStorage(node, context_.stage(producer), copy->second);
    }
    ExprList indices;
    for (size_t i = 0; i < node->args.size(); ++i) {
      Expr index = Simplify(node->args[i]);
      const Expr last = Int(node->buffer->shape[i] - 1);
      // What holds by an assumption alone is not seen any more of an index that is clamped on the
      // other side.
      const Interval bounds = BoundsOf(index);
      const bool is_below = Proves(known.assumptions, index <= last);
      const bool is_above = Proves(known.assumptions, Int(0) <= index);
      if (!is_below || (!is_above && bounds.max >= node->buffer->shape[i])) {
        index = MakeExpr(Op::kMin, {index, last});
      }
      if (!is_above || (!is_below && bounds.min < 0)) index = MakeExpr(Op::kMax, {index, Int(0)});
      indices.push_back(std::move(index));
    }
    return Load(node->buffer, std::move(indices));
  }));
}

Expr Resolver::FromStorage(const Expr& load, const ScheduledStage& producer,
                           const KernelContext::Storage& storage) {
  ExprList indices;
  const bool is_fragment = producer.Note<Fragment>() != nullptr;
  if (is_fragment || producer.Note<RowFragment>() != nullptr) {
    for (size_t i = 0; i < load->args.size(); ++i) {
      indices.push_back(Simplify(load->args[i] - producer.base[i]));
    }
    return Load(storage.buffer, is_fragment ? HeldInFragment(context_, producer, indices)
                                            : HeldInRows(context_, producer, indices));
  }
  const auto dealt = DealtAxisOf(producer);
  for (size_t i = 0; i < load->args.size(); ++i) {
    const Expr index = Simplify(load->args[i] - producer.base[i]);
    const bool is_dealt = dealt.has_value() && i == dealt->axis;
    indices.push_back(is_dealt ? HeldAt(context_, producer, *dealt, index) : index);
  }
  const Expr held = Load(storage.buffer, context_.IndicesOf(context_.schedule.IndexOf(producer),
                                                            indices, storage.slot));
  if (held->type == load->type) return held;
  return ToType(producer.tensor->dtype, held);  // sums of integers are kept as such (scatter)
}

Expr Resolver::ResolveLoad(const Expr& load, Known& known) {
  const int producer = context_.schedule.FindStage(load->buffer.get());
  const auto storage = context_.storage.find(producer);
  if (storage != context_.storage.end()) {
    return FromStorage(load, context_.stage(producer), storage->second);
  }
  const auto global = context_.globals.find(load->buffer.get());
  if (global == context_.globals.end()) {
    context_.Fail(absl::StrCat(load->buffer->name, " is read where it is not computed yet"));
    return load;
  }
  ExprList indices;
  Expr condition;
  for (size_t i = 0; i < load->args.size(); ++i) {
    const Expr index = Resolve(load->args[i], known);
    const int64_t size = load->buffer->shape[i];
    const Interval bounds = BoundsOf(index);
    if (const Expr below = Int(0) <= index; bounds.min < 0 && !Proves(known.assumptions, below)) {
      condition = AndAlso(condition, below);
    }
    if (const Expr above = index < Int(size);
        bounds.max >= size && !Proves(known.assumptions, above)) {
      condition = AndAlso(condition, above);
    }
    indices.push_back(index);
  }
  Expr safe = Load(global->second, std::move(indices));
  const bool is_whole = global->second->dtype != load->buffer->dtype;  // as in FromStorage
  if (is_whole) safe = ToType(load->buffer->dtype, safe);
  if (condition == nullptr) return safe;
  return Select(condition, safe, IsFloat(safe->type) ? Float(0, safe->type) : Int(0));
}

Expr Resolver::ResolveSelect(const Expr& e, Known& known) {
  const Expr condition = Simplify(Resolve(e->args[0], known));
  if (condition->op == Op::kInt) return Resolve(e->args[condition->int_value != 0 ? 1 : 2], known);
  if (Proves(known.assumptions, condition)) return Resolve(e->args[1], known);
  auto under = [&](const Expr& assumption, const Expr& side) {
    Known inside{.assumptions = known.assumptions,
                 .concerned = ConcernedBy(known.assumptions, assumption),
                 .around = &known};
    inside.assumptions.push_back(assumption);
    return Resolve(side, inside);
  };
  const Expr taken = under(condition, e->args[1]);
  const Expr other = under(Simplify(MakeExpr(Op::kNot, {condition})), e->args[2]);
  // One condition for a padded read: select(c, select(d, x, 0), 0) is select(c && d, x, 0).
  if (taken->op == Op::kSelect && StructurallyEqual(taken->args[2], other)) {
    return Select(AndAlso(condition, taken->args[0]), taken->args[1], other);
  }
  return Select(condition, taken, other);
}

}  // namespace

Expr AtLoops(const Schedule& schedule, const ScheduledStage& here, const Expr& definition) {
  return Substitute(definition, [&](const Var& v) -> Expr {
    for (size_t i = 0; i < here.axes.size(); ++i) {
      if (here.axes[i] == v) return schedule.AxisValue(here, i);
    }
    for (size_t i = 0; i < here.reduce_axes.size(); ++i) {
      if (here.reduce_axes[i] == v) return here.values[here.axes.size() + i];
    }
    return nullptr;
  });
}

Expr Resolve(KernelContext& context, const Expr& e, const Assumptions& assumptions) {
  Known known{.assumptions = assumptions};
  return Resolver(context).Resolve(e, known);
}

std::vector<Expr> GuardsOf(const Schedule& schedule, const ScheduledStage& here) {
  std::vector<Expr> guards;
  for (const Expr& g : here.guards) {
    const std::vector<const ScheduledStage*> all = schedule.Together(here);
    const bool vanishes = std::all_of(all.begin(), all.end(), [&](const ScheduledStage* s) {
      return VanishesOutside(schedule, *s, g, true);
    });
    if (!vanishes) guards.push_back(g);
  }
  for (size_t i = 0; here.is_root() && i < here.axes.size(); ++i) {
    const Expr inside = Simplify(here.values[i] < Int(here.axes[i]->extent));
    if (!Proves(guards, inside)) guards.push_back(inside);
  }
  return guards;
}

}  // namespace heddle::search_space
