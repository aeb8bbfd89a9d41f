// A schedule: a tensor program's stages with loop nests and attach points, changed step by step
// (Apply of step.h).
// Everything is static and eager: a primitive leaves every loop with a known extent, so there is no
// bounds inference later and a step that does not apply is refused at once.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "search_space/ir/expr/expr.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/scheduled_stage.h"

namespace heddle::search_space {

class Schedule {
 public:
  // The program's stages, each at the root with one serial loop per axis. A reduction that is an
  // output, or that is not read by exactly one elementwise stage, is given such a reader: C becomes
  // C.acc, which reduces, and C, which copies it. So every reduction can be computed in registers
  // inside the loops of its reader; this is why reverse_compute_at is not needed. What all terms of
  // a sum are multiplied with, or divided by, is applied to the sum, by such a reader, unless it is
  // another stage's.
  explicit Schedule(std::shared_ptr<const TensorProgram> program);

  const TensorProgram& program() const { return *program_; }
  // Definition order: producers before consumers.
  const std::vector<ScheduledStage>& stages() const { return stages_; }
  // That of an index such as FindStage's, not negative.
  const ScheduledStage& stage(int index) const { return stages_[static_cast<size_t>(index)]; }
  int FindStage(const std::string& name) const;  // -1 when there is none
  int FindStage(const Buffer* tensor) const;     // the stage that defines `tensor`, or -1
  // The index expression of axis i (0 <= i < axes + reduce_axes), in loop variables.
  Expr AxisValue(const ScheduledStage& stage, size_t i) const;
  int IndexOf(const ScheduledStage& stage) const {
    return static_cast<int>(&stage - stages_.data());
  }
  // The stage in whose kernel `stage` is computed as things stand: itself at the root.
  const ScheduledStage& KernelOf(const ScheduledStage& stage) const;
  // The stage whose loops compute `stage`: its leader, or itself.
  const ScheduledStage& NestOf(const ScheduledStage& stage) const;
  // The stages that the loops of `leader` compute: itself first.
  std::vector<const ScheduledStage*> Together(const ScheduledStage& leader) const;
  bool HasCompanions(const ScheduledStage& leader) const { return Together(leader).size() > 1; }
  // Stages whose body reads `tensor`.
  std::vector<int> ReadersOf(const Buffer* tensor) const;
  // The stage whose body reads `tensor`; nothing where there is none or several, which is known
  // with the second.
  std::optional<int> OnlyReaderOf(const Buffer* tensor) const;

 private:
  friend class ScheduleEditor;
  std::shared_ptr<const TensorProgram> program_;
  std::vector<ScheduledStage> stages_;
};

// Loops that enclose the computation of `stage`, outermost first: its consumers' loops down to the
// attach points.
std::vector<const Loop*> EnclosingLoops(const Schedule& schedule, const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULE_H_
