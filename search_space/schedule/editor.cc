#include "search_space/schedule/editor.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {

absl::StatusOr<ScheduledStage*> ScheduleEditor::FindStage(const std::string& name) {
  const int i = schedule_.FindStage(name);
  if (i < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no stage ", name, "; the stages are ",
        absl::StrJoin(stages(), ", ",
                      [](std::string* out, const ScheduledStage& s) { out->append(s.name()); })));
  }
  ScheduledStage& found = stage(i);
  if (found.inlined) return Refuse(absl::StrCat("stage ", name, " was computed inline"));
  if (found.leader != nullptr) {
    return Refuse(absl::StrCat("stage ", name, " is computed with ", found.leader->name,
                               ": what is decided about that holds for both"));
  }
  return &found;
}

absl::Status ScheduleEditor::Rewrite(
    const std::string& name, absl::FunctionRef<Rewritten(const Schedule&, int index)> rewrite) {
  HEDDLE_ASSIGN_OR_RETURN(here, FindStage(name));
  if (here->consumer >= 0 || HasAttached(schedule_, *here) || !here->untouched ||
      schedule_.HasCompanions(*here)) {
    return Refuse(absl::StrCat(name, " is scheduled already"));
  }
  const int index = schedule_.IndexOf(*here);
  HEDDLE_ASSIGN_OR_RETURN(made, rewrite(schedule_, index));
  *here = std::move(made.back());
  made.pop_back();
  Insert(index, std::move(made));
  return absl::OkStatus();
}

void ScheduleEditor::Insert(int index, std::vector<ScheduledStage> made) {
  for (ScheduledStage& s : stages()) {
    if (s.consumer >= index) s.consumer += static_cast<int>(made.size());
  }
  stages().insert(stages().begin() + index, std::make_move_iterator(made.begin()),
                  std::make_move_iterator(made.end()));
}

namespace {

// Whatever becomes of the stages between, outputs keep their elements.
absl::Status CheckOutputs(const TensorProgram& before, const TensorProgram& after) {
  for (const Stage& s : before.stages) {
    if (!s.is_output) continue;
    const Stage* const same = after.FindStage(s.name());
    if (same == nullptr || !same->is_output || same->tensor->elements != s.tensor->elements) {
      return Refuse(absl::StrCat("it would change output ", s.name()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ScheduleEditor::RewriteProgram(
    const std::string& stage,
    absl::FunctionRef<RewrittenProgram(const TensorProgram&, const std::string& stage)> rewrite) {
  if (!IsUnscheduled()) return Refuse("it comes before all other steps");
  HEDDLE_ASSIGN_OR_RETURN(program, rewrite(schedule_.program(), stage));
  HEDDLE_RETURN_IF_ERROR(CheckOutputs(schedule_.program(), *program));
  schedule_ = Schedule(std::move(program));
  return absl::OkStatus();
}

bool ScheduleEditor::IsUnscheduled() const {
  const std::vector<ScheduledStage>& stages = schedule_.stages();
  return std::none_of(stages.begin(), stages.end(),
                      [](const ScheduledStage& s) {
                        return s.consumer >= 0 || s.leader != nullptr || !s.untouched;
                      }) &&
         stages.size() == Schedule(schedule_.program_).stages().size();
}

void ScheduleEditor::Permute(const std::vector<int>& order) {
  std::vector<ScheduledStage> moved;
  std::vector<int> place(order.size());
  for (int from : order) {
    place[static_cast<size_t>(from)] = static_cast<int>(moved.size());
    moved.push_back(std::move(stage(from)));
  }
  for (ScheduledStage& s : moved) {
    if (s.consumer >= 0) s.consumer = place[static_cast<size_t>(s.consumer)];
  }
  stages() = std::move(moved);
}

absl::StatusOr<size_t> FindLoop(const ScheduledStage& stage, const std::string& name) {
  const int i = stage.FindLoop(name);
  if (i < 0) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage.name(), " has no loop ", name,
                                                   "; its loops are ", LoopNames(stage)));
  }
  return static_cast<size_t>(i);
}

std::string LoopNames(const ScheduledStage& stage) {
  return absl::StrJoin(stage.loops, ", ",
                       [](std::string* out, const Loop& l) { out->append(l.var->name); });
}

bool HasAttached(const Schedule& schedule, const ScheduledStage& stage) {
  return std::any_of(
      schedule.stages().begin(), schedule.stages().end(),
      [&](const ScheduledStage& s) { return s.consumer == schedule.IndexOf(stage); });
}

bool IsFree(const Schedule& schedule, const ScheduledStage& stage) {
  return stage.untouched && stage.consumer < 0 && stage.notes.empty() && stage.useful.empty() &&
         !HasAttached(schedule, stage);
}

bool HasAttachedAt(const Schedule& schedule, const ScheduledStage& stage, const Loop& loop) {
  return std::any_of(schedule.stages().begin(), schedule.stages().end(),
                     [&](const ScheduledStage& s) {
                       return s.consumer == schedule.IndexOf(stage) && s.attach_loop == loop.var;
                     });
}

absl::Status CheckNothingAttachedAt(const Schedule& schedule, const ScheduledStage& stage,
                                    size_t loop) {
  const Var& var = stage.loops[loop].var;
  for (const ScheduledStage& s : schedule.stages()) {
    if (s.consumer == schedule.IndexOf(stage) && s.attach_loop == var) {
      return Refuse(absl::StrCat("loop ", var->name, " of ", stage.name(),
                                 " cannot change any more: ", s.name(), " is computed there"));
    }
  }
  if (stage.loops[loop].interleaved) {
    return Refuse(absl::StrCat("loop ", var->name, " of ", stage.name(),
                               " cannot change any more: copies are interleaved with it"));
  }
  return absl::OkStatus();
}

absl::Status SetKind(ScheduledStage& stage, size_t loop, LoopKind kind) {
  if (stage.loops[loop].kind != LoopKind::kSerial) {
    return Refuse(absl::StrCat("loop ", stage.loops[loop].var->name, " of ", stage.name(),
                               " is bound or annotated already"));
  }
  stage.loops[loop].kind = kind;
  stage.untouched = false;
  return absl::OkStatus();
}

void ReplaceVar(ScheduledStage& stage, const Var& var, const Expr& value) {
  for (Expr& e : stage.values) e = SimplifyAt(e, var, value);
  for (Expr& e : stage.guards) e = SimplifyAt(e, var, value);
}

}  // namespace heddle::search_space
