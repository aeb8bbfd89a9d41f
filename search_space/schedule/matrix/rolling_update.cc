#include "search_space/schedule/matrix/rolling_update.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/rolling_reductions.h"
#include "search_space/schedule/bounds.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/loops/skip_masked.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/row_fragment.h"

namespace heddle::search_space {
namespace {

// The axis of the consumer's reduction, of so many terms, through which the loop goes, if it goes
// through no other one. One of a single iteration takes all of them.
absl::StatusOr<size_t> AxisThrough(const ScheduledStage& consumer, const Loop& loop,
                                   int64_t terms) {
  std::optional<size_t> through;
  bool is_one = true;
  for (size_t r = 0; r < consumer.reduce_axes.size(); ++r) {
    const bool mentions = MentionsAny(consumer.values[consumer.axes.size() + r], {loop.var.get()});
    const bool has_terms = consumer.reduce_axes[r]->extent == terms;
    if (has_terms && (mentions || loop.var->extent == 1) && !through) {
      through = r;
    } else {
      is_one = is_one && !mentions;
    }
  }
  if (through && is_one) return *through;
  return Refuse(absl::StrCat(consumer.name(), " does not reduce over ", terms,
                             " terms in iterations of ", loop.var->name));
}

// The terms that an iteration of the consumer's loop at `depth` takes of so many, whole along other
// axes of the reduction: so many from `base` on, if iterations are consecutive parts of all.
absl::StatusOr<Region> TermsOf(const ScheduledStage& consumer, size_t depth, int64_t all) {
  const Loop& loop = consumer.loops[depth];
  const bool is_first = std::none_of(consumer.loops.begin(),
                                     consumer.loops.begin() + static_cast<std::ptrdiff_t>(depth),
                                     [](const Loop& l) { return l.reduce; });
  if (!loop.reduce || loop.kind != LoopKind::kSerial || !is_first) {
    return Refuse(absl::StrCat("rolling_update wants the outermost loop of ", consumer.name(),
                               " that reduces, serial"));
  }
  HEDDLE_ASSIGN_OR_RETURN(axis, AxisThrough(consumer, loop, all));
  const Region terms = RegionOf(consumer.values[consumer.axes.size() + axis],
                                [&](const Var& v) { return v != loop.var; });
  const Expr first = Simplify(VarExpr(loop.var) * Int(terms.extent));
  if (!IsInt(Simplify(terms.base - first), 0) || terms.extent * loop.var->extent != all) {
    return Refuse(absl::StrCat("iterations of ", loop.var->name,
                               " are no equal parts of the terms of ", consumer.name(),
                               " in order"));
  }
  return terms;
}

// Can the sums that are taken along with one another make good for running values?
absl::Status CheckSlopes(const Schedule& schedule, const ScheduledStage& consumer,
                         const std::vector<const ScheduledStage*>& rolled) {
  for (const ScheduledStage* running : rolled) {
    std::vector<const ScheduledStage*> dependents = rolled;
    dependents.push_back(&consumer);
    for (const ScheduledStage* other : dependents) {
      if (other == running) continue;
      const auto slope = SlopeOf(schedule, *other, *running);
      if (slope == 0.0) continue;
      if (slope && Shrinks(running->combiner, *slope) && other->combiner == Combiner::kSum)
        continue;
      return Refuse(absl::StrCat("the terms of ", other->name(), " depend on ", running->name(),
                                 " so that no factor makes good for what it is before its end"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int> RolledWith(const Schedule& schedule, int consumer) {
  std::vector<int> rolled;
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (s.consumer == consumer && s.Note<RollingUpdate>() != nullptr) {
      rolled.push_back(static_cast<int>(i));
    }
  }
  return rolled;
}

absl::Status RollingUpdate::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(around, editor.FindStage(consumer));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*around, loop));
  const auto* rows = here->Note<RowFragment>();
  const auto* fragment = around->Note<Fragment>();
  if (rows == nullptr || here->consumer >= 0 || !here->untouched || here->reduce_axes.size() != 1) {
    return Refuse(absl::StrCat(stage,
                               " is no row_fragment that reduces over one axis and is not "
                               "computed in any loop yet"));
  }
  if (fragment == nullptr || !around->is_reduction() || around->consumer < 0 ||
      fragment->instruction != rows->instruction) {
    return Refuse(absl::StrCat(consumer, " is no fragment of ", ShapeOf(rows->instruction).name,
                               " that is computed in a loop"));
  }
  if (schedule.IndexOf(*here) >= schedule.IndexOf(*around)) {
    return Refuse(absl::StrCat(consumer, " does not depend on ", stage));
  }
  HEDDLE_ASSIGN_OR_RETURN(terms, TermsOf(*around, at, here->reduce_axes[0]->extent));
  const FragmentLayout& layout = rows->layout();
  if (terms.extent % layout.block_cols() != 0) {
    return Refuse(absl::StrCat(stage, " takes multiples of ", layout.block_cols(),
                               " terms at a time, not ", terms.extent));
  }
  std::vector<const ScheduledStage*> rolled = {here};
  for (int r : RolledWith(schedule, schedule.IndexOf(*around))) {
    rolled.push_back(&schedule.stage(r));
  }
  HEDDLE_RETURN_IF_ERROR(CheckSlopes(schedule, *around, rolled));
  if (!around->useful.empty() && !MayBeLeftOutWith(schedule, *around, *here)) {
    return Refuse(
        absl::StrCat("terms of ", stage, " are of use where those of ", consumer, " are left out"));
  }
  std::vector<Expr> base;
  std::vector<int64_t> extent;
  HEDDLE_RETURN_IF_ERROR(
      InferRegion(schedule, *here, around->consumer, around->attach_loop, base, extent));
  HEDDLE_RETURN_IF_ERROR(rows->CheckRegion(*here, base, extent));
  here->base = std::move(base);
  here->extent = std::move(extent);
  here->consumer = schedule.IndexOf(*around);
  here->attach_loop = around->loops[at].var;
  ResetLoops(*here);
  Loop& reduce = here->loops.back();
  reduce.var = MakeVar(reduce.var->name, terms.extent);
  here->values.back() = Simplify(terms.base + VarExpr(reduce.var));
  here->untouched = false;
  ScheduleEditor::Keep(*this, *here);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
