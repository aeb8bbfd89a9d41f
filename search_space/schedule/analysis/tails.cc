// Where a split leaves a tail: what may run past the end of a reduction.
#include "search_space/schedule/analysis/tails.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"

namespace heddle::search_space {

namespace {

// Is the condition false past the axis' end?
bool IsFalsePast(const Expr& condition, const Var& axis) {
  return condition->op == Op::kLt && IsVar(condition->args[0], axis) &&
         condition->args[1]->op == Op::kInt && condition->args[1]->int_value <= axis->extent;
}

// Is it a number that is finite and not zero, also as float32, in which it is computed?
bool IsNumber(const Expr& e) {
  if (e->op != Op::kFloat) return false;
  const auto number = static_cast<float>(e->float_value);
  return std::isfinite(number) && number != 0;
}

// Is a product zero past the axis' end? So are all of its factors but numbers: one that is not may
// be infinite.
bool IsProductZero(const Schedule& schedule, const Expr& product, const Var& axis, bool placed) {
  bool is_zero = false;
  std::vector<Expr> factors = {product};
  while (!factors.empty()) {
    const Expr f = factors.back();
    factors.pop_back();
    if (f->op == Op::kMul) {
      factors.insert(factors.end(), f->args.begin(), f->args.end());
    } else if (IsZeroOutside(schedule, f, axis, placed)) {
      is_zero = true;
    } else if (!IsNumber(f)) {
      return false;
    }
  }
  return is_zero;
}

}  // namespace

bool IsZeroOutside(const Schedule& schedule, const Expr& e, const Var& axis, bool placed) {
  if (e->op == Op::kSelect) {
    if (const Expr whole = WholeOf(e)) return IsZeroOutside(schedule, whole, axis, placed);
    return IsZeroOutside(schedule, e->args[2], axis, placed) &&
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
    case Op::kAdd:
    case Op::kSub:
    case Op::kSqrt:
    case Op::kTanh:
    case Op::kErf:
      return std::all_of(e->args.begin(), e->args.end(), is_zero);
    case Op::kMul:
      return IsProductZero(schedule, e, axis, placed);
    case Op::kDiv:
      return is_zero(e->args[0]) && IsNumber(e->args[1]);
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
    return IsZeroOutside(schedule, stage.body, axis, placed);
  }
  return false;
}

}  // namespace heddle::search_space
