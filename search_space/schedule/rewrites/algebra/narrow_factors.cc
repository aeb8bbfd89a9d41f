#include "search_space/schedule/rewrites/algebra/narrow_factors.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/math.h"
#include "base/status.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// The last axis along which both factors are read and that is more than one, and no whole number,
// of so many terms; null where there is none.
Var AxisWithTail(const Stage& sum, const ExprList& of, int64_t terms) {
  const auto has_tail = [&](const Var& axis) {
    return axis->extent > terms && axis->extent % terms != 0 &&
           std::all_of(of.begin(), of.end(),
                       [&](const Expr& factor) { return MentionsAny(factor, {axis.get()}); });
  };
  const auto axis = std::find_if(sum.reduce_axes.rbegin(), sum.reduce_axes.rend(), has_tail);
  return axis == sum.reduce_axes.rend() ? nullptr : *axis;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithNarrowFactors(const TensorProgram& program,
                                                                       const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  HEDDLE_ASSIGN_OR_RETURN(type, TypeOfWholeFactors(program, program.stages[number]));
  auto narrowed = std::make_shared<TensorProgram>(program);
  Stage& sum = narrowed->stages[number];
  const ExprList before = FactorsOf(sum);
  const int64_t terms = ShapeOf(WarpInstruction(type)).k;  // that units multiply at once
  const Var axis = AxisWithTail(sum, before, terms);
  Var longer;
  if (axis != nullptr) {
    longer = MakeVar(axis->name, RoundUp(axis->extent, terms));
    std::replace(sum.reduce_axes.begin(), sum.reduce_axes.end(), axis, longer);
  }
  ExprList factors;
  for (const Expr& factor : before) {
    Expr half = AsHalf(factor);
    if (half == nullptr) half = Cast(type, factor);
    if (axis != nullptr) {
      half = Substitute(half, [&](const Var& v) { return v == axis ? VarExpr(longer) : nullptr; });
      half = Select(VarExpr(longer) < Int(axis->extent), std::move(half), Float(0, type));
    }
    factors.push_back(Cast(DType::kFloat32, std::move(half)));
  }
  sum.body = MakeExpr(Op::kMul, std::move(factors));
  return narrowed;
}

absl::Status NarrowFactors::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithNarrowFactors);
}

}  // namespace heddle::search_space
