#include "search_space/schedule/rewrites/reductions/narrow_factors.h"

#include "base/status.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithNarrowFactors(const TensorProgram& program,
                                                                       const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  HEDDLE_ASSIGN_OR_RETURN(type, TypeOfWholeFactors(program, program.stages[number]));
  auto narrowed = std::make_shared<TensorProgram>(program);
  Expr& body = narrowed->stages[number].body;
  ExprList factors;
  for (const Expr& factor : body->args) {
    const bool is_half = AsHalf(factor) != nullptr;
    factors.push_back(is_half ? factor : Cast(DType::kFloat32, Cast(type, factor)));
  }
  body = MakeExpr(Op::kMul, std::move(factors));
  return narrowed;
}

absl::Status NarrowFactors::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithNarrowFactors);
}

}  // namespace heddle::search_space
