// What a kernel computes, in its loop variables and from its storage.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/lower/lower_kernel.h"

namespace heddle::search_space {

// Definition variables (axes) replaced by loop variables.
Expr KernelBuilder::AtLoops(int s, const Expr& definition) const {
  const ScheduledStage& here = stage(s);
  return Substitute(definition, [&](const Var& v) -> Expr {
    for (size_t i = 0; i < here.axes.size(); ++i) {
      if (here.axes[i] == v) return schedule_.AxisValue(here, i);
    }
    for (size_t i = 0; i < here.reduce_axes.size(); ++i) {
      if (here.reduce_axes[i] == v) return here.values[here.axes.size() + i];
    }
    return nullptr;
  });
}

// The iteration of a loop of a local stage that this thread makes.
Expr KernelBuilder::PartOf(const Loop& loop) const {
  const int64_t parts = loop.var->extent;
  const Expr thread = VarExpr(thread_);
  return Simplify(loop.sliced ? thread / Int(thread_->extent / parts) : thread % Int(parts));
}

// Loop variables of attached stages that are bound to thread, as the thread's number.
Expr KernelBuilder::OnThread(const Expr& e) const {
  return Simplify(Substitute(e, [&](const Var& v) -> Expr {
    for (const ScheduledStage& s : schedule_.stages()) {
      const int l = s.consumer < 0 ? -1 : s.FindLoop(v);
      if (l < 0 || s.loops[static_cast<size_t>(l)].kind != LoopKind::kThread) continue;
      return PartOf(s.loops[static_cast<size_t>(l)]);
    }
    return nullptr;
  }));
}

// Where a thread holds element `index` of a spread axis, which must be one of its own.
Expr KernelBuilder::HeldAt(const Spread& spread, const Expr& index) {
  const Expr holder = OnThread(index / Int(spread.vector) % Int(spread.threads));
  if (!IsInt(Simplify(holder - VarExpr(thread_) % Int(spread.threads)), 0)) {
    Fail(absl::StrCat(spread.stage, " is spread over threads, and element ", ToString(index),
                      " is read by another thread than the one that holds it"));
  }
  const int64_t round = spread.threads * spread.vector;
  return Simplify(index / Int(round) * Int(spread.vector) + index % Int(spread.vector));
}

Expr KernelBuilder::ResolveLoad(const Expr& load, Known& known) {
  const int producer = schedule_.FindStage(load->buffer.get());
  ExprList indices;
  if (producer >= 0 && storage_.contains(producer)) {
    const ScheduledStage& p = stage(producer);
    if (slots_.contains(producer)) indices.push_back(slots_.at(producer));
    for (size_t i = 0; i < load->args.size(); ++i) {
      const Expr index = Simplify(load->args[i] - p.base[i]);
      const bool spread = p.Note<Spread>() != nullptr && i + 1 == load->args.size();
      indices.push_back(spread ? HeldAt(*p.Note<Spread>(), index) : index);
    }
    return Load(storage_.at(producer), std::move(indices));
  }
  const auto global = globals_.find(load->buffer.get());
  if (global == globals_.end()) {
    Fail(absl::StrCat(load->buffer->name, " is read where it is not computed yet"));
    return load;
  }
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
  const Expr safe = Load(global->second, std::move(indices));
  return condition == nullptr ? safe : Select(condition, safe, Float(0, safe->type));
}

Expr KernelBuilder::Resolve(const Expr& e, const Assumptions& assumptions) {
  Known known{.assumptions = assumptions};
  return Resolve(e, known);
}

Expr KernelBuilder::Resolve(const Expr& e, Known& known) {
  if (!IsShared(e)) return ResolveNode(e, known);
  for (Known* k = &known; k != nullptr; k = k->around) {
    if (const auto done = k->resolved.find(e.get()); done != k->resolved.end()) return done->second;
  }
  Known* k = &known;
  while (k->around != nullptr && !MentionsAny(e, k->concerned)) k = k->around;
  Expr resolved = ResolveNode(e, *k);
  k->resolved.emplace(e.get(), resolved);
  return resolved;
}

Expr KernelBuilder::ResolveNode(const Expr& e, Known& known) {
  if (e->op == Op::kLoad) return ResolveLoad(e, known);
  if (e->op == Op::kSelect) return ResolveSelect(e, known);
  const bool compares_indices = e->args.size() == 2 && e->args[0]->type == DType::kInt64;
  if (e->type == DType::kInt64 || compares_indices) return Simplify(e);
  std::shared_ptr<ExprNode> changed;
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr arg = Resolve(e->args[i], known);
    if (arg == e->args[i]) continue;
    if (changed == nullptr) changed = std::make_shared<ExprNode>(*e);
    changed->args[i] = std::move(arg);
  }
  return changed != nullptr ? Expr(changed) : e;
}

Expr KernelBuilder::ResolveSelect(const Expr& e, Known& known) {
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

// Conditions under which an iteration of the stage's loops may store.
std::vector<Expr> KernelBuilder::GuardsOf(int s) const {
  const ScheduledStage& here = stage(s);
  std::vector<Expr> guards;
  for (const Expr& g : here.guards) {
    if (!VanishesOutside(schedule_, here, g, true)) guards.push_back(g);
  }
  for (size_t i = 0; here.is_root() && i < here.axes.size(); ++i) {
    const Expr inside = Simplify(here.values[i] < Int(here.axes[i]->extent));
    if (!Proves(guards, inside)) guards.push_back(inside);
  }
  return guards;
}

}  // namespace heddle::search_space
