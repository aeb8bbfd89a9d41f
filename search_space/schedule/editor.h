// What primitives work with. Each checks everything before it changes anything, so that a refused
// step leaves the schedule as it was.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_EDITOR_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_EDITOR_H_

#include <any>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/math.h"
#include "base/status.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

class ScheduleEditor {
 public:
  using RewrittenProgram = absl::StatusOr<std::shared_ptr<const TensorProgram>>;
  using Rewritten = absl::StatusOr<std::vector<ScheduledStage>>;

  explicit ScheduleEditor(Schedule& schedule) : schedule_(schedule) {}

  template <typename S>
  absl::Status Apply(const S& step) {
    if constexpr (requires(const ScheduledStage& here) { step.CheckAt(schedule_, here); }) {
      return Annotate(step);
    } else {
      return step.ApplyTo(*this);
    }
  }

  const Schedule& schedule() const { return schedule_; }
  std::vector<ScheduledStage>& stages() { return schedule_.stages_; }
  ScheduledStage& stage(int index) { return stages()[static_cast<size_t>(index)]; }
  // A stage that is not inlined, and has its own loops.
  absl::StatusOr<ScheduledStage*> FindStage(const std::string& name);
  // Puts the stages that `rewrite` makes of an unscheduled stage, itself the last, in its place.
  absl::Status Rewrite(const std::string& name,
                       absl::FunctionRef<Rewritten(const Schedule&, int index)> rewrite);
  // Puts stages in front of stage `index`.
  void Insert(int index, std::vector<ScheduledStage> made);
  // Puts the stages into another order: stage order[i] comes to place i.
  void Permute(const std::vector<int>& order);
  // Begins anew with what `rewrite` makes of the program, for the stage that the step names. Only
  // other steps that do so come before it.
  absl::Status RewriteProgram(
      const std::string& stage,
      absl::FunctionRef<RewrittenProgram(const TensorProgram&, const std::string& stage)> rewrite);
  // Has the stage keep an annotation, in the place of an earlier one of its kind that it replaces.
  template <Annotation S>
  static void Keep(const S& step, ScheduledStage& stage) {
    for (std::any& note : stage.notes) {
      const S* earlier = std::any_cast<S>(&note);
      if (earlier == nullptr) continue;
      if constexpr (requires { &S::Replaces; }) {
        if (!step.Replaces(*earlier)) continue;
      }
      note = step;
      return;
    }
    stage.notes.emplace_back(step);
  }

 private:
  // Is every stage as it comes with the program?
  bool IsUnscheduled() const;
  template <typename S>
  absl::Status Annotate(const S& step) {
    HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
    HEDDLE_RETURN_IF_ERROR(step.CheckAt(schedule_, *stage));
    Keep(step, *stage);
    return absl::OkStatus();
  }

  Schedule& schedule_;
};

inline absl::Status Refuse(const std::string& why) { return absl::InvalidArgumentError(why); }

absl::StatusOr<size_t> FindLoop(const ScheduledStage& stage, const std::string& name);
std::string LoopNames(const ScheduledStage& stage);
// Is another stage computed in the loops of this one?
bool HasAttached(const Schedule& schedule, const ScheduledStage& stage);
// Is nothing decided about the stage but what is computed with it?
bool IsFree(const Schedule& schedule, const ScheduledStage& stage);
bool HasAttachedAt(const Schedule& schedule, const ScheduledStage& stage, const Loop& loop);
// Refuses to change a loop around which another stage is already computed.
absl::Status CheckNothingAttachedAt(const Schedule& schedule, const ScheduledStage& stage,
                                    size_t loop);
// Binds or annotates a loop that is serial so far.
absl::Status SetKind(ScheduledStage& stage, size_t loop, LoopKind kind);
// Replaces a loop variable in the stage's values and guards.
void ReplaceVar(ScheduledStage& stage, const Var& var, const Expr& value);

inline constexpr int64_t kMaxVector = 16;  // elements; 16 bytes of one-byte elements
inline bool IsVectorWidth(int64_t v) { return IsPowerOfTwo(v) && v <= kMaxVector; }

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_EDITOR_H_
