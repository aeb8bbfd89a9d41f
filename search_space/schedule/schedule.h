// A schedule: a tensor program's stages with loop nests and attach points, changed step by step.
// Everything is static and eager: a primitive leaves every loop with a known extent, so there is no
// bounds inference later and a step that does not apply is refused at once.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

enum class LoopKind : uint8_t { kSerial, kUnrolled, kVector, kBlock, kThread, kVthread };

struct Loop {
  Var var;  // its name is the loop's name
  LoopKind kind = LoopKind::kSerial;
  bool reduce = false;
  // Bound to thread, and shared by threads of whole parts of the block instead of by neighbours.
  bool sliced = false;
  // Of such a reduction: do the threads of all parts get the result, instead of the last one's?
  bool for_all = false;
  // Of a fused loop: the extent of all but the first of its parts together; 1 otherwise.
  int64_t inner_extent = 1;

  // Does one thread make all of its iterations, one after another?
  bool IsIterated() const { return kind == LoopKind::kSerial || kind == LoopKind::kUnrolled; }
};

// A stage under construction. Its definition is tensor[axes] = combiner(reduce_axes) body, as in
// Stage; what is decided about it follows.
struct ScheduledStage {
  BufferRef tensor;  // what readers' loads refer to; never the storage that lowering allocates
  std::vector<Var> axes;
  std::vector<Var> reduce_axes;
  Combiner combiner = Combiner::kNone;
  Expr body;
  bool is_output = false;

  Scope scope = Scope::kGlobal;
  // The region that is computed: [base, base + extent) of each axis. At the root base is 0 and
  // extent the axis'; attached, base depends on loops around the attach point, and the region may
  // reach past the axis: what lies outside is zero or never used.
  std::vector<Expr> base;
  std::vector<int64_t> extent;
  std::vector<Loop> loops;   // outermost first
  std::vector<Expr> values;  // of axes (relative to base), then of reduce_axes, in loop variables
  std::vector<Expr> guards;  // conditions on loop variables left by splits that do not divide

  // Of a sum: comparisons `a < b` of its axes; of tiles in which one of them never holds the terms
  // are left out (skip_masked).
  std::vector<Expr> useful;

  // Always a kernel of its own, whose result lies in a workspace: recomputing it in its readers
  // would cost more than it saves.
  bool materialized = false;
  bool inlined = false;
  // What the stage in whose loops it is computed defines (compute_with); null = it has its own. Its
  // axes are then the leader's variables.
  BufferRef leader;
  int consumer = -1;  // index of the stage it is computed in; -1 = root
  Var attach_loop;    // loop of the consumer

  // The annotations that were applied: of a kind the last one given. (Pipelines are two where the
  // registers that the inner one's loop reads run ahead, too: see prefetch().)
  std::vector<Step> notes;
  template <typename S>
  const S* Note() const;  // the first of its kind, or null
  const Pipeline* prefetch() const;

  const std::string& name() const { return tensor->name; }
  bool is_root() const { return consumer < 0 && !inlined && leader == nullptr; }
  bool is_reduction() const { return combiner != Combiner::kNone; }
  // The reduction loop that threads share, if there is one.
  const Loop* shared_reduction() const;
  // Loops are one per axis, as they were made: the state that compute_at, align and fetch ask for.
  bool untouched = true;

  int FindLoop(const std::string& name) const;  // -1 when there is none
  int FindLoop(const Var& var) const;
  int FindAxis(const std::string& name) const;  // of `axes`
  int FindAxis(const Var& axis) const;
  // Does an expression in loop variables depend on a loop that reduces?
  bool MentionsReduction(const Expr& e) const;
};

template <typename S>
const S* ScheduledStage::Note() const {
  for (const Step& note : notes) {
    if (const S* found = std::get_if<S>(&note); found != nullptr) return found;
  }
  return nullptr;
}

class Schedule {
 public:
  // The program's stages, each at the root with one serial loop per axis. A reduction that is an
  // output, or that is not read by exactly one elementwise stage, is given such a reader: C becomes
  // C.acc, which reduces, and C, which copies it. So every reduction can be computed in registers
  // inside the loops of its reader; this is why reverse_compute_at is not needed. What all terms of
  // a sum are multiplied with, or divided by, is applied to the sum, by such a reader, unless it is
  // another stage's.
  explicit Schedule(std::shared_ptr<const TensorProgram> program);

  // Applies a step or refuses it (InvalidArgument, naming the step, the stage and the reason) and
  // leaves the schedule as it was.
  absl::Status Apply(const Step& step);
  absl::Status Apply(const std::vector<Step>& steps);

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

// A stage of a program with one serial loop per axis and no decision made.
ScheduledStage MakeScheduledStage(const Stage& stage);

// The one-loop-per-axis state for the given region, extents of reduce_axes from the axes.
void ResetLoops(ScheduledStage& stage);

// An axis whose elements threads hold together: runs of `vector` are dealt out in turn to `threads`
// neighbours, or to as many equal parts of the block.
struct DealtAxis {
  size_t axis;
  int64_t threads, vector;
  bool sliced;

  // The place of a thread in its group.
  Expr PlaceOf(const Var& thread) const;
};
// Of a stage that is spread, or whose scan threads share (share_scan); none of others.
std::optional<DealtAxis> DealtAxisOf(const ScheduledStage& stage);

// Loops that enclose the computation of `stage`, outermost first: its consumers' loops down to the
// attach points.
std::vector<const Loop*> EnclosingLoops(const Schedule& schedule, const ScheduledStage& stage);

// The region of `producer` that all its readers need when it is computed inside `loop` of
// `consumer` in its present scope (bounds.cc).
absl::Status InferRegion(const Schedule& schedule, const ScheduledStage& producer, int consumer,
                         const Var& loop, std::vector<Expr>& base, std::vector<int64_t>& extent);

// May `guard`, left by splitting a reduction loop of the stage's nest, go because past the end the
// body adds zero? All factors must vanish: infinity times zero would not. `placed`: where every
// stage is computed is decided already (tails.cc).
bool VanishesOutside(const Schedule& schedule, const ScheduledStage& stage, const Expr& guard,
                     bool placed);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULE_H_
