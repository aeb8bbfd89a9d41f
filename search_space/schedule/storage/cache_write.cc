#include "search_space/schedule/storage/cache_write.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status CacheWrite::ApplyTo(ScheduleEditor& editor) const {
  const std::string name = absl::StrCat(stage, ".", NameOf(scope));
  if (scope == Scope::kGlobal || editor.schedule().FindStage(name) >= 0) {
    return Refuse(absl::StrCat("what ", stage, " computes is kept in scope local or shared, once"));
  }
  return editor.Rewrite(stage, [&](const Schedule& schedule, int index) {
    const ScheduledStage& here = schedule.stage(index);
    if (here.is_reduction()) {
      return ScheduleEditor::Rewritten(Refuse(
          absl::StrCat(stage, " reduces; cache_write is for what reads its sums elsewhere")));
    }
    Stage computes;
    computes.tensor = MakeBuffer(name, here.tensor->dtype, Scope::kGlobal, here.tensor->shape);
    ExprList copied, axes;
    for (const Var& axis : here.axes) {
      copied.push_back(VarExpr(axis));
      computes.axes.push_back(MakeVar(axis->name, axis->extent));
      axes.push_back(VarExpr(computes.axes.back()));
    }
    computes.body = Substitute(here.body, here.axes, axes);
    std::vector<ScheduledStage> made = {MakeScheduledStage(computes), here};
    made[0].scope = scope;
    made[1].body = Load(made[0].tensor, std::move(copied));
    return ScheduleEditor::Rewritten(std::move(made));
  });
}

}  // namespace heddle::search_space
