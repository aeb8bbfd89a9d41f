#include "search_space/schedule/loops/rfactor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/tails.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/placement/compute_with.h"

namespace heddle::search_space {
namespace {

// The stage of partial results: the factored loop in front of the data axes of `whole`, which
// `nest` computes; reduces over the reduction loops that are left.
absl::StatusOr<ScheduledStage> PartialResults(const Schedule& schedule, const ScheduledStage& whole,
                                              const Loop& factored) {
  const ScheduledStage& nest = schedule.NestOf(whole);
  Stage partial;
  partial.axes.push_back(MakeVar(factored.var->name, factored.var->extent));
  std::vector<int64_t> shape = {factored.var->extent};
  for (const Var& axis : whole.axes) {
    partial.axes.push_back(MakeVar(axis->name, axis->extent));
    shape.push_back(axis->extent);
  }
  std::vector<std::pair<Var, Expr>> renamed = {{factored.var, VarExpr(partial.axes[0])}};
  for (const Loop& l : nest.loops) {
    if (!l.reduce || l.var == factored.var) continue;
    partial.reduce_axes.push_back(MakeVar(l.var->name, l.var->extent));
    renamed.emplace_back(l.var, VarExpr(partial.reduce_axes.back()));
  }
  auto rename = [&](const Expr& e) {
    return Substitute(e, [&](const Var& v) -> Expr {
      for (const auto& [from, to] : renamed) {
        if (from == v) return to;
      }
      return nullptr;
    });
  };
  const auto in_part = [&](const Expr& e) {
    return Substitute(e, [&](const Var& v) -> Expr {
      for (size_t i = 0; i < whole.axes.size(); ++i) {
        if (whole.axes[i] == v) return VarExpr(partial.axes[i + 1]);
      }
      for (size_t i = 0; i < whole.reduce_axes.size(); ++i) {
        if (whole.reduce_axes[i] == v) return rename(nest.values[nest.axes.size() + i]);
      }
      return nullptr;
    });
  };
  Expr body = in_part(whole.body);
  for (const Expr& guard : nest.guards) {
    if (!nest.MentionsReduction(guard)) {
      return Refuse(absl::StrCat("rfactor before splitting the data axes of ", whole.name()));
    }
    if (VanishesOutside(schedule, whole, guard, false)) continue;
    body = Select(rename(guard), body, IdentityOf(whole.combiner, whole.tensor->dtype));
  }
  partial.tensor = MakeBuffer(whole.name() + ".rf", whole.tensor->dtype, Scope::kGlobal, shape);
  partial.combiner = partial.reduce_axes.empty() ? Combiner::kNone : whole.combiner;
  partial.body = Simplify(body);
  ScheduledStage made = MakeScheduledStage(partial);
  for (const Expr& c : whole.useful) made.useful.push_back(Simplify(in_part(c)));
  return made;
}

}  // namespace

absl::Status Rfactor::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, loop));
  const Loop factored = here->loops[at];
  if (!factored.reduce || here->consumer >= 0 || HasAttached(schedule, *here)) {
    return Refuse(
        absl::StrCat("rfactor wants a reduction loop of a stage that is not attached "
                     "yet; ",
                     loop, " of ", stage, " is not one"));
  }
  std::vector<ScheduledStage> partials;
  for (const ScheduledStage* whole : schedule.Together(*here)) {
    HEDDLE_ASSIGN_OR_RETURN(partial, PartialResults(schedule, *whole, factored));
    partials.push_back(std::move(partial));
  }
  std::vector<ComputeWith> companions;
  std::vector<ScheduledStage*> wholes;
  int first = schedule.IndexOf(*here);
  for (ScheduledStage& s : editor.stages()) {
    if (s.leader == here->tensor) wholes.push_back(&s);
    if (s.leader == here->tensor) first = std::min(first, schedule.IndexOf(s));
  }
  wholes.insert(wholes.begin(), here);
  const Var combine = MakeVar(loop, factored.var->extent);
  for (size_t i = 0; i < wholes.size(); ++i) {
    ScheduledStage& whole = *wholes[i];
    ExprList indices = {VarExpr(combine)};
    ComputeWith with{partials[i].name(), partials[0].name(), {loop}};
    for (const Var& axis : whole.axes) {
      indices.push_back(VarExpr(axis));
      with.axes.push_back(axis->name);
    }
    if (i > 0) companions.push_back(std::move(with));
    whole.body = Load(partials[i].tensor, std::move(indices));
    whole.reduce_axes = {combine};
    whole.useful.clear();  // a part may be
  }
  ResetLoops(*here);
  editor.Insert(first, std::move(partials));
  for (const ComputeWith& with : companions) HEDDLE_RETURN_IF_ERROR(editor.Apply(with));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
