// Rules: each makes plans for the kernels to which it applies.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_RULES_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_RULES_H_

#include <memory>

#include "search_space/ir/target.h"
#include "search_space/sketch/kernel_plan.h"
#include "search_space/sketch/kernels.h"

namespace heddle::search_space {

// Terms that one float32 accumulator adds up one after another, at most: a million positive ones
// are off by a seventh of the tolerance, four million by more than all of it.
inline constexpr int64_t kMostSerialTerms = int64_t{1} << 20;

// Looks at one kernel of the shape and makes a plan for it.
class SketchRule {
 public:
  virtual ~SketchRule() = default;
  virtual const char* name() const = 0;
  // Does its plan place what lies between the reductions of a fused kernel? Others are not asked
  // about those.
  virtual bool takes_fused_kernels() const { return false; }
  // Is its plan there for want of a better one? Only the definition keeps it beside others.
  virtual bool is_fallback() const { return false; }
  // Does its plan use units that multiply small matrices, many times faster than all others do?
  virtual bool multiplies_matrices() const { return false; }
  // Is its plan worth trials only where no rule before it but a fallback applies?
  virtual bool is_last_resort() const { return false; }
  virtual bool Applies(const ProgramShape& shape, const KernelShape& kernel,
                       const Target& target) const = 0;
  // Null where that is found out only by making the plan.
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
// The same of a reduction that reads everything once, such as the sums of columns.
std::unique_ptr<SketchRule> MakeColumnsRule();
// Products of matrices of 16-bit numbers, or of tf32, by instructions that multiply small matrices.
std::unique_ptr<SketchRule> MakeMatrixRule();
// The same by instructions of warpgroups, which read their operands from shared memory.
std::unique_ptr<SketchRule> MakeWarpgroupRule();
// The same two of products of which reductions of rows are stored, in parts of their columns, such
// as the maximum of each row of scores.
std::unique_ptr<SketchRule> MakeMatrixRowPartsRule();
std::unique_ptr<SketchRule> MakeWarpgroupRowPartsRule();
// The same two of products of which what is made of the elements at all places of an axis is
// stored, such as of a gate and of what it opens.
std::unique_ptr<SketchRule> MakeMatrixPlacesRule();
std::unique_ptr<SketchRule> MakeWarpgroupPlacesRule();
// Rows reduced by groups of threads, several reductions in one kernel: softmax, layer norm, sums.
std::unique_ptr<SketchRule> MakeRowsRule();
// The same of rows along another axis than the innermost one, side by side, where a block can hold
// some in registers and something of them is read again: norms over channels, softmax of columns.
std::unique_ptr<SketchRule> MakeStridedRowsRule();
// Reductions of prefixes, such as cumulative sums, of rows or columns that threads hold whole.
std::unique_ptr<SketchRule> MakePrefixRule();
// Reductions that read one another's results along the same rows, such as attention, in one kernel.
std::unique_ptr<SketchRule> MakeChainRule();
// The same of two products of 16-bit matrices, such as attention, by instructions that multiply
// small matrices, with statistics of rows that are taken along.
std::unique_ptr<SketchRule> MakeRollingRule();
// The same by instructions of warpgroups.
std::unique_ptr<SketchRule> MakeWarpgroupRollingRule();

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_RULES_H_
