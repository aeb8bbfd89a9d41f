// Where a split leaves a tail: what may run past the end of a reduction.
#include "search_space/schedule/tails.h"

#include <algorithm>

#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/operands.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"

namespace heddle::search_space {

namespace {

// Is the condition false past the axis' end?
bool IsFalsePast(const Expr& condition, const Var& axis) {
  return condition->op == Op::kLt && condition->args[0]->op == Op::kVar &&
         condition->args[0]->var == axis && condition->args[1]->op == Op::kInt &&
         condition->args[1]->int_value <= axis->extent;
}

}  // namespace

bool IsZeroOutside(const Schedule& schedule, const Expr& e, const Var& axis, bool placed) {
  if (e->op == Op::kSelect) {
    if (const Expr whole = WholeOf(e)) return IsZeroOutside(schedule, whole, axis, placed);
    return e->args[2]->op == Op::kFloat && e->args[2]->float_value == 0 &&
           (IsFalsePast(e->args[0], axis) || IsZeroOutside(schedule, e->args[1], axis, placed));
  }
  const auto is_zero = [&](const Expr& arg) { return IsZeroOutside(schedule, arg, axis, placed); };
  switch (e->op) {
    case Op::kFloat:
      return e->float_value == 0;
    case Op::kCast:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kMax:
    case Op::kMin:
      return std::all_of(e->args.begin(), e->args.end(), is_zero);
    case Op::kLoad:
      break;
    default:
      return false;
  }
  for (size_t i = 0; i < e->args.size(); ++i) {
    if (e->args[i]->op != Op::kVar || e->args[i]->var != axis) continue;
    if (e->buffer->shape[i] != axis->extent) return false;
    const int producer = schedule.FindStage(e->buffer.get());
    if (producer < 0) return true;
    const ScheduledStage& p = schedule.stage(producer);
    if (placed ? schedule.NestOf(p).is_root() : p.materialized || p.is_output) return true;
    if (StoresParts(schedule, p)) return true;
    return !p.is_reduction() && IsZeroOutside(schedule, p.body, p.axes[i], placed);
  }
  return false;
}

bool VanishesOutside(const Schedule& schedule, const ScheduledStage& stage, const Expr& guard,
                     bool placed) {
  if (stage.combiner != Combiner::kSum) return false;
  const ScheduledStage& nest = schedule.NestOf(stage);
  for (size_t i = 0; i < stage.reduce_axes.size(); ++i) {
    const Var& axis = stage.reduce_axes[i];
    const Expr tail = Simplify(nest.values[nest.axes.size() + i] < Int(axis->extent));
    if (!StructurallyEqual(tail, guard)) continue;
    std::vector<Expr> factors = {stage.body};
    while (!factors.empty()) {
      const Expr f = factors.back();
      factors.pop_back();
      if (f->op == Op::kMul) {
        factors.insert(factors.end(), f->args.begin(), f->args.end());
      } else if (!IsZeroOutside(schedule, f, axis, placed)) {
        return false;
      }
    }
    return true;
  }
  return false;
}

}  // namespace heddle::search_space
