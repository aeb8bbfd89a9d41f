#include "search_space/schedule/placement/reduce_beside.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

// Which stages wait for `stage`, and it: those that read it, themselves or through others, and what
// is computed together with one that does.
std::vector<bool> Behind(const Schedule& schedule, const ScheduledStage& stage) {
  std::vector<bool> behind(schedule.stages().size());
  std::vector<const ScheduledStage*> nests = {&stage};
  while (!nests.empty()) {
    const ScheduledStage& nest = *nests.back();
    nests.pop_back();
    for (const ScheduledStage* s : schedule.Together(nest)) {
      const auto i = static_cast<size_t>(schedule.IndexOf(*s));
      if (behind[i]) continue;
      behind[i] = true;
      for (const int r : schedule.ReadersOf(s->tensor.get())) {
        nests.push_back(&schedule.NestOf(schedule.stage(r)));
      }
    }
  }
  return behind;
}

std::string NameOfParts(const ScheduledStage& whole) {
  return absl::StrCat(whole.name(), ".parts");
}

// How the rows of a stage lie among those of its leader: `outer` times, by its own axes but the
// last, `rows` that it reduces.
struct RowsOfStage {
  int64_t outer = 1, rows = 1;
};

absl::StatusOr<RowsOfStage> RowsOf(const ReduceBeside& step, const ScheduledStage& stage,
                                   const ScheduledStage& leader) {
  const size_t own = stage.axes.size(), reduced = stage.reduce_axes.size();
  const auto refuse = [&](const std::string& why) {
    return Refuse(absl::StrCat(step.stage, " cannot be reduced beside ", step.leader, ": ", why));
  };
  if (own == 0 || step.axes.size() != own + reduced || leader.axes.size() != own + reduced) {
    return refuse("one axis of the leader takes the place of each of the stage's");
  }
  RowsOfStage found;
  for (size_t i = 0; i < own + reduced; ++i) {
    const Var& axis = i < own ? stage.axes[i] : stage.reduce_axes[i - own];
    const bool is_column = i + 1 == own;
    // Outer ones, those that are reduced, the column.
    const size_t at = is_column ? own + reduced - 1 : i - (i < own ? 0 : 1);
    if (leader.axes[at]->name != step.axes[i] || leader.axes[at]->extent != axis->extent) {
      return refuse(absl::StrCat("axis ", axis->name, " is not ", step.axes[i],
                                 ", of the same extent, in the order of the leader's: rows that "
                                 "are reduced, and columns last"));
    }
    if (!is_column) (i < own ? found.outer : found.rows) *= axis->extent;
  }
  if (step.rows < 1 || step.rows > found.rows || step.groups < 1 || step.rows % step.groups != 0 ||
      (found.outer > 1 && found.rows % step.rows != 0)) {
    return refuse(absl::StrCat(step.rows, " of ", found.rows, " rows for ", step.groups,
                               " groups are no equal parts"));
  }
  return found;
}

// Do the terms read what the leader's nest computes at their own element alone, and nothing that is
// made of it? Others are of other threads, or not there yet.
bool ReadsOwnAlone(const Schedule& schedule, const Expr& term, const ScheduledStage& leader,
                   const std::vector<bool>& behind_leader) {
  bool own = true;
  Visit(term, [&](const Expr& load) {
    const int read = load->op == Op::kLoad ? schedule.FindStage(load->buffer.get()) : -1;
    if (read < 0 || !behind_leader[static_cast<size_t>(read)]) return;
    const ScheduledStage& stage = schedule.stage(read);
    own = own && &schedule.NestOf(stage) == &leader;
    for (size_t d = 0; own && d < stage.axes.size(); ++d) {
      own = IsVar(load->args[d], stage.axes[d]);
    }
  });
  return own;
}

}  // namespace

ReduceBeside BesideRowsOf(const ScheduledStage& leader, const ScheduledStage& stage, int64_t rows,
                          int64_t groups) {
  ReduceBeside step{stage.name(), leader.name(), {}, rows, groups};
  const size_t outer = stage.axes.size() - 1, reduced = stage.reduce_axes.size();
  for (size_t a = 0; a < outer; ++a) step.axes.push_back(leader.axes[a]->name);
  step.axes.push_back(leader.axes.back()->name);
  for (size_t a = outer; a < outer + reduced; ++a) step.axes.push_back(leader.axes[a]->name);
  return step;
}

namespace {

// The stages in the order in which those that are neither behind `here` nor behind its leader come
// first, then the leader and what it computes, then, from the returned place on, all others.
std::pair<std::vector<int>, int> OrderAround(const Schedule& schedule, const ScheduledStage& leader,
                                             const std::vector<bool>& behind,
                                             const std::vector<bool>& behind_leader) {
  std::vector<int> first, leaders, others;
  for (size_t i = 0; i < behind.size(); ++i) {
    const bool is_leader = &schedule.NestOf(schedule.stages()[i]) == &leader;
    std::vector<int>& part = is_leader ? leaders : behind[i] || behind_leader[i] ? others : first;
    part.push_back(static_cast<int>(i));
  }
  first.insert(first.end(), leaders.begin(), leaders.end());
  const auto place = static_cast<int>(first.size());
  first.insert(first.end(), others.begin(), others.end());
  return {std::move(first), place};
}

}  // namespace

absl::Status ReduceBeside::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(nest, editor.FindStage(leader));
  if (!here->is_reduction() || nest->is_reduction() || !nest->is_root()) {
    return Refuse(
        absl::StrCat("reduce_beside wants a reduction and an elementwise stage with a "
                     "kernel of its own; ",
                     stage, " and ", leader, " are not these"));
  }
  if (!IsFree(schedule, *here) || !IsFree(schedule, *nest) || here->scope != Scope::kGlobal ||
      nest->scope != Scope::kGlobal) {
    return Refuse(
        absl::StrCat("reduce_beside comes before other changes to ", stage, " and ", leader));
  }
  HEDDLE_ASSIGN_OR_RETURN(found, RowsOf(*this, *here, *nest));
  const std::vector<bool> behind = Behind(schedule, *here);
  for (const ScheduledStage* s : schedule.Together(*nest)) {
    if (behind[static_cast<size_t>(schedule.IndexOf(*s))]) {
      return Refuse(absl::StrCat(s->name(), " reads ", stage, ", so that it cannot be reduced ",
                                 "beside it"));
    }
  }
  const int64_t parts_of_outer = CeilDiv(found.rows, rows);
  const Var part = MakeVar("part", parts_of_outer);
  Expr number = Int(0);  // of the part, among all
  for (size_t i = 0; i + 1 < here->axes.size(); ++i) {
    number = number * Int(here->axes[i]->extent) + VarExpr(here->axes[i]);
  }
  number = Simplify(number * Int(parts_of_outer) + VarExpr(part));
  const auto in_leader = [&](const Var& v) -> Expr {
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t own = here->axes.size();
      if ((i < own ? here->axes[i] : here->reduce_axes[i - own]) == v) {
        return VarExpr(nest->axes[nest->AxisOf(axes[i])]);
      }
    }
    return nullptr;
  };
  const std::vector<bool> behind_leader = Behind(schedule, *nest);
  for (const ScheduledStage* whole : schedule.Together(*here)) {
    if (schedule.FindStage(NameOfParts(*whole)) >= 0) {
      return Refuse(absl::StrCat(whole->name(), " has parts already"));
    }
    if (!ReadsOwnAlone(schedule, Substitute(whole->body, in_leader), *nest, behind_leader)) {
      return Refuse(absl::StrCat(whole->name(), " reads what is made of ", leader,
                                 " at another element than its own, or through other stages"));
    }
  }
  std::vector<ScheduledStage> made;
  for (ScheduledStage& whole : editor.stages()) {
    if (&whole != here && whole.leader != here->tensor) continue;
    const Var& column = here->axes.back();
    Stage parts{.axes = {MakeVar("part", found.outer * parts_of_outer),
                         MakeVar(column->name, column->extent)},
                .combiner = whole.combiner,
                .body = Substitute(whole.body, in_leader)};
    parts.tensor = TensorOver(parts.axes, NameOfParts(whole), whole.tensor->dtype);
    ScheduledStage& stage_of_parts = made.emplace_back(MakeScheduledStage(parts));
    stage_of_parts.leader = nest->tensor;
    stage_of_parts.loops.clear();
    stage_of_parts.values.clear();
    ScheduleEditor::Keep(*this, stage_of_parts);
    whole.body = Load(parts.tensor, {number, VarExpr(column)});
  }
  for (ScheduledStage& whole : editor.stages()) {
    if (&whole == here || whole.leader == here->tensor) whole.reduce_axes = {part};
  }
  ResetLoops(*here);
  const auto [order, place] = OrderAround(schedule, *nest, behind, behind_leader);
  editor.Permute(order);
  editor.Insert(place, std::move(made));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
