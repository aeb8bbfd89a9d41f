// A stage of a program with what is decided about it: its loops, and where it is computed and kept.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULED_STAGE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULED_STAGE_H_

#include <any>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "search_space/ir/expr/expr.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// Elements of a row that are worth a group of threads: shorter ones are one thread's work, for
// which nothing is combined.
inline constexpr int64_t kShortestRow = 16;

enum class LoopKind : uint8_t { kSerial, kUnrolled, kVector, kBlock, kThread, kVthread };

struct Loop {
  Var var;  // its name is the loop's name
  LoopKind kind = LoopKind::kSerial;
  bool reduce = false;
  // Bound to thread, and shared by threads of whole parts of the block instead of by neighbours.
  bool sliced = false;
  // Of such a reduction: do the threads of all parts get the result, instead of the last one's?
  bool for_all = false;
  // Are copies of the pipeline around it started in its iterations (interleave)? The loop is not
  // changed any more.
  bool interleaved = false;
  // Of a fused loop: the extent of all but the first of its parts together; 1 otherwise.
  int64_t inner_extent = 1;

  // Does one thread make all of its iterations, one after another?
  bool IsIterated() const { return kind == LoopKind::kSerial || kind == LoopKind::kUnrolled; }
};

// A step that its stage keeps: an annotation (HEDDLE_ANNOTATION), or a primitive that says so.
template <typename S>
concept Annotation = S::kIsNote;

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

  // The annotations that were applied, each a step of its own type, as ScheduleEditor::Keep puts
  // them here: of a kind the last one given, but for pipelines of two loops.
  std::vector<std::any> notes;
  template <Annotation S>
  const S* Note() const;  // the first of its kind, or null

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
  // The same of one that is there.
  size_t AxisOf(const std::string& name) const { return static_cast<size_t>(FindAxis(name)); }
  size_t AxisOf(const Var& axis) const { return static_cast<size_t>(FindAxis(axis)); }
  // Does an expression in loop variables depend on a loop that reduces?
  bool MentionsReduction(const Expr& e) const;
};

template <Annotation S>
const S* ScheduledStage::Note() const {
  for (const std::any& note : notes) {
    if (const S* found = std::any_cast<S>(&note); found != nullptr) return found;
  }
  return nullptr;
}

// A stage of a program with one serial loop per axis and no decision made.
ScheduledStage MakeScheduledStage(const Stage& stage);

// The one-loop-per-axis state for the given region, extents of reduce_axes from the axes.
void ResetLoops(ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_SCHEDULED_STAGE_H_
