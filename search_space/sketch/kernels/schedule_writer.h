// Writes a schedule step by step. Stages and loops are handles that the steps hand out, so that
// only the primitives know what things are called:
//
//   const auto [block, thread] = w.Split(axis, 256);
//   w.Bind(block, BindTo::kBlock);
//   w.Bind(thread, BindTo::kThread);
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_SCHEDULE_WRITER_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_SCHEDULE_WRITER_H_

#include <array>
#include <concepts>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// A stage, by the tensor that it defines: the same in every copy of a schedule.
struct StageRef {
  BufferRef tensor;
  const std::string& name() const { return tensor->name; }
};

// A loop of a stage. It is gone when the loop is split or fused, or its stage put elsewhere.
struct LoopRef {
  StageRef stage;
  Var var;
  const std::string& name() const { return var->name; }
};
using LoopList = std::vector<LoopRef>;  // outermost first

// One list after another.
LoopList Join(std::initializer_list<LoopList> lists);

// Applies each step at once and records it. A step that does not apply is recorded too, as the
// last: whoever applies the steps is told why. It ends what is being written, by an exception that
// Try turns into a status.
class ScheduleWriter {
 public:
  explicit ScheduleWriter(Schedule schedule) : schedule_(std::move(schedule)) {}

  // Runs `write`, which calls a writer. InvalidArgument when a step does not apply.
  static absl::Status Try(absl::FunctionRef<void()> write);

  // The loops of a stage as it is now; those over data, those that reduce.
  LoopList Loops(const StageRef& stage) const { return LoopsOf(stage, true, true); }
  LoopList DataLoops(const StageRef& stage) const { return LoopsOf(stage, true, false); }
  LoopList ReduceLoops(const StageRef& stage) const { return LoopsOf(stage, false, true); }

  // The parts, outermost first.
  LoopList Split(const LoopRef& loop, std::vector<int64_t> factors);
  template <std::convertible_to<int64_t>... Factors>
  std::array<LoopRef, sizeof...(Factors) + 1> Split(const LoopRef& loop, Factors... factors) {
    LoopList parts = Split(loop, std::vector<int64_t>{factors...});
    std::array<LoopRef, sizeof...(Factors) + 1> out;
    std::move(parts.begin(), parts.end(), out.begin());
    return out;
  }
  LoopRef Fuse(const LoopList& loops);  // no step where there is one loop
  void Reorder(const LoopList& loops);
  void Bind(const LoopRef& l, BindTo to) {
    Apply(search_space::Bind{l.stage.name(), l.name(), to});
  }
  void Vectorize(const LoopRef& l) { Apply(search_space::Vectorize{l.stage.name(), l.name()}); }
  void Unroll(const LoopRef& l) { Apply(search_space::Unroll{l.stage.name(), l.name()}); }
  // Returns the copy.
  StageRef CacheRead(const BufferRef& tensor, Scope scope, const StageRef& reader) {
    return ApplyAndFind(search_space::CacheRead{tensor->name, scope, reader.name()});
  }
  // One copy for all that is computed in the kernel of `root` by now.
  StageRef CacheReadForKernel(const BufferRef& tensor, Scope scope, const StageRef& root) {
    return ApplyAndFind(search_space::CacheRead{tensor->name, scope, "all@" + root.name()});
  }
  // Returns the stage that computes what `s` copies from then on.
  StageRef CacheWrite(const StageRef& s, Scope scope) {
    return ApplyAndFind(search_space::CacheWrite{s.name(), scope});
  }
  // Returns the stage that the operand becomes.
  StageRef GatherRead(const StageRef& reader, int64_t operand) {
    return ApplyAndFind(search_space::GatherRead{reader.name(), operand});
  }
  void SetScope(const StageRef& s, Scope scope) { Apply(search_space::SetScope{s.name(), scope}); }
  void ComputeAt(const StageRef& s, const LoopRef& l) {
    Apply(search_space::ComputeAt{s.name(), l.stage.name(), l.name()});
  }
  void ComputeInline(const StageRef& s) { Apply(search_space::ComputeInline{s.name()}); }
  void Fetch(const StageRef& s, int64_t threads, int64_t vector) {
    Apply(search_space::Fetch{s.name(), threads, vector});
  }
  // Of each `rows` of the leader's rows; returns the stages of their results.
  std::vector<StageRef> ReduceBeside(const StageRef& s, const StageRef& leader, int64_t rows,
                                     int64_t groups);
  // Returns the stage of partial results.
  StageRef Rfactor(const LoopRef& l) {
    return ApplyAndFind(search_space::Rfactor{l.stage.name(), l.name()});
  }
  // Copies `reduction`, and what is computed with it, to global memory for `reader`; their copies,
  // which are computed together.
  std::vector<StageRef> Materialize(const StageRef& reduction, const StageRef& reader);
  void Spread(const StageRef& s, size_t axis, int64_t threads, int64_t vector) {
    Apply(search_space::Spread{s.name(), At(s).axes[axis]->name, threads, vector});
  }
  void Spread(const StageRef& s, int64_t threads, int64_t vector) {  // along its last axis
    Spread(s, At(s).axes.size() - 1, threads, vector);
  }
  void Fragment(const StageRef& s, MatrixInstruction instruction, MatrixOperand operand,
                const std::string& row, const std::string& col) {
    Apply(search_space::Fragment{s.name(), instruction, operand, row, col});
  }
  void RowFragment(const StageRef& s, MatrixInstruction instruction, const std::string& row) {
    Apply(search_space::RowFragment{s.name(), instruction, row});
  }
  void RollingUpdate(const StageRef& s, const LoopRef& l) {
    Apply(search_space::RollingUpdate{s.name(), l.stage.name(), l.name()});
  }
  void Tensorize(const StageRef& s, const LoopRef& m, const LoopRef& n, const LoopRef& k) {
    Apply(search_space::Tensorize{s.name(), m.name(), n.name(), k.name()});
  }
  LoopRef Replicate(const StageRef& s, int64_t threads) {  // returns the loop that it adds
    Apply(search_space::Replicate{s.name(), threads});
    return {s, At(s).loops.back().var};
  }
  // `order`: indices of the stage's axes, outermost first.
  void StorageLayout(const StageRef& stage, const std::vector<size_t>& order, int64_t pad,
                     int64_t swizzle);
  void BlockLayout(const StageRef& s, size_t axis, int64_t elements) {
    Apply(search_space::BlockLayout{s.name(), At(s).axes[axis]->name, elements});
  }
  void Align(const StageRef& s, size_t axis, int64_t multiple) {
    Apply(search_space::Align{s.name(), At(s).axes[axis]->name, multiple});
  }
  void Reverse(const LoopRef& l) { Apply(search_space::Reverse{l.stage.name(), l.name()}); }
  void ShareScan(const StageRef& s, int64_t threads, int64_t vector, ScanGroup group) {
    Apply(search_space::ShareScan{s.name(), threads, vector, group});
  }
  void Scatter(const StageRef& s, int64_t unroll) {
    Apply(search_space::Scatter{s.name(), unroll});
  }
  void ScatterInMemory(const StageRef& s, int64_t blocks, int64_t threads, int64_t unroll,
                       int64_t vector) {
    Apply(search_space::ScatterInMemory{s.name(), blocks, threads, unroll, vector});
  }
  void SkipMasked(const StageRef& s) { Apply(search_space::SkipMasked{s.name()}); }
  void Pipeline(const LoopRef& l, PipelineKind kind, int64_t depth) {
    Apply(search_space::Pipeline{l.stage.name(), l.name(), kind, depth});
  }
  void InFlight(const StageRef& s, int64_t tiles) {
    Apply(search_space::InFlight{s.name(), tiles});
  }
  void Interleave(const LoopRef& l) { Apply(search_space::Interleave{l.stage.name(), l.name()}); }
  void BlockSwizzle(const StageRef& s, int64_t rows) {
    Apply(search_space::BlockSwizzle{s.name(), rows});
  }
  void Persist(const StageRef& s, int64_t blocks) {
    Apply(search_space::Persist{s.name(), blocks});
  }
  void LaunchBounds(const StageRef& s, int64_t blocks) {
    Apply(search_space::LaunchBounds{s.name(), blocks});
  }

  const Schedule& schedule() const { return schedule_; }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  const ScheduledStage& At(const StageRef& stage) const;
  LoopList LoopsOf(const StageRef& stage, bool data, bool reduce) const;
  void Apply(Step step);
  StageRef ApplyAndFind(Step step);  // the stage that the step adds

  Schedule schedule_;
  std::vector<Step> steps_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_SCHEDULE_WRITER_H_
