// Sketches: how one kernel can be scheduled, with holes. A program's kernels are found first
// (FindKernels); each rule that applies to a kernel makes a plan for it; a sketch of the whole
// program is one plan per kernel (search_space.cc).
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_SKETCH_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_SKETCH_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "search_space/ir/target.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// One kernel: the stage it writes, the reductions that are computed inside it, and the elementwise
// stages that only those read and that can be kept in shared memory instead of being inlined.
struct KernelShape {
  int root = -1;  // indices into the schedule's stages
  std::vector<int> reductions;
  std::vector<int> stageable;
};

// The decisions that every sketch shares (what is inlined) and the kernels that remain.
struct ProgramShape {
  std::vector<Step> steps;
  Schedule schedule;  // with `steps` applied
  std::vector<KernelShape> kernels;
};
// `algorithm` (algorithms.h) comes first among the steps.
ProgramShape FindKernels(std::shared_ptr<const TensorProgram> program,
                         const std::vector<Step>& algorithm);
// The program as a single kernel with nothing inlined, for plans that fuse several reductions;
// without kernels when its last stage is not its only output.
ProgramShape FuseKernels(std::shared_ptr<const TensorProgram> program);

// A decision left open: one of a list of values. Holes of one group are redrawn and exchanged
// together, because their limits hang together.
struct Hole {
  std::string name;
  std::vector<int64_t> domain;  // first what kernels were like before there was the hole
  int group = 0;
};
using HoleValues = absl::Span<const int64_t>;

// A kernel's schedule with holes.
class KernelPlan {
 public:
  virtual ~KernelPlan() = default;
  const std::vector<Hole>& holes() const { return holes_; }
  // The simplest sensible values, as indices into the domains.
  virtual std::vector<uint8_t> Default() const = 0;
  // Closed-form limits: threads, shared memory, registers, code size. ResourceExhausted names the
  // limit.
  virtual absl::Status Check(HoleValues values) const = 0;
  // Iterations that are executed over iterations that are needed; 1 = no padding.
  virtual double Waste(HoleValues values) const = 0;
  // Draws values that are likely to be valid; every valid choice can come up. Uniform unless a plan
  // knows better.
  virtual void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const;
  virtual void AppendSteps(HoleValues values, std::vector<Step>& steps) const = 0;

 protected:
  std::vector<Hole> holes_;
};

// A rule of the ordered list: looks at one kernel of the shape and makes a plan for it.
class SketchRule {
 public:
  virtual ~SketchRule() = default;
  virtual const char* name() const = 0;
  virtual bool Applies(const ProgramShape& shape, const KernelShape& kernel,
                       const Target& target) const = 0;
  virtual std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                            const Target& target) const = 0;
};

// One element (or a short vector of them) a thread; applies to every kernel.
std::unique_ptr<SketchRule> MakeStreamingRule();
// Tiles in shared memory for tensors that are read across their rows, such as a transpose.
std::unique_ptr<SketchRule> MakeStagingRule();
// Multi-level tiling of a reduction with data reuse: block, virtual thread, warp, lane and register
// tiles, shared tiles and register fragments of the inputs, fused epilogue.
std::unique_ptr<SketchRule> MakeTilingRule();

// Rows reduced by groups of threads, several reductions in one kernel: softmax, layer norm, sums.
std::unique_ptr<SketchRule> MakeRowsRule();

// All rules, in the order in which sketches are numbered.
const std::vector<std::unique_ptr<SketchRule>>& SketchRules();

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_SKETCH_H_
