// The rules there are.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_RULES_RULES_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_RULES_RULES_H_

#include "search_space/sketch/kernels/rule.h"

namespace heddle::search_space {

// One element (or a short vector of them) a thread; applies to every kernel.
extern const SketchRule kStreamingRule;
// Tiles in shared memory for tensors that are read across their rows, such as a transpose.
extern const SketchRule kStagingRule;
// Multi-level tiling of a reduction with data reuse: block, virtual thread, warp, lane and register
// tiles, shared tiles and register fragments of the inputs, fused epilogue.
extern const SketchRule kTilingRule;
// The same of a reduction that reads everything once, such as the sums of columns.
extern const SketchRule kColumnsRule;
// Products of matrices of 16-bit numbers, or of tf32, by instructions that multiply small matrices.
extern const SketchRule kMatrixRule;
// The same by instructions of warpgroups, which read their operands from shared memory.
extern const SketchRule kWarpgroupRule;
// The same two of products of which reductions of rows are stored, in parts of their columns, such
// as the maximum of each row of scores.
extern const SketchRule kMatrixRowPartsRule, kWarpgroupRowPartsRule;
// The same two of products of which what is made of the elements at all places of an axis is
// stored, such as of a gate and of what it opens.
extern const SketchRule kMatrixPlacesRule, kWarpgroupPlacesRule;
// Sums, maxima and the like of a product's elements over an axis that no tile has.
extern const SketchRule kMatrixReducedRule, kWarpgroupReducedRule;
// Rows reduced by groups of threads, several reductions in one kernel: softmax, layer norm, sums.
extern const SketchRule kRowsRule;
extern const SketchRule kFewRowsRule;  // for a few results, whatever they read
// The same of rows along another axis than the innermost one, side by side, where a block can hold
// some in registers and something of them is read again: norms over channels, softmax of columns.
extern const SketchRule kStridedRowsRule;
// Reductions of scattered terms, such as histograms and sums by groups, which threads of a block
// add where they belong.
extern const SketchRule kScatterRule;
// The same in the device's memory, of more places perhaps than a block can hold.
extern const SketchRule kScatterInMemoryRule;
// Reductions of prefixes, such as cumulative sums, of rows or columns that threads hold whole.
extern const SketchRule kPrefixRule;
// All that is computed of a site, such as a particle, by one thread: several small reductions,
// systems of a few equations, several outputs.
extern const SketchRule kSitesRule;
// Reductions that read one another's results along the same rows, such as attention, in one kernel.
extern const SketchRule kChainRule;
// The same of two products of 16-bit matrices, such as attention, by instructions that multiply
// small matrices, or of warpgroups, with statistics of rows that are taken along.
extern const SketchRule kRollingRule, kWarpgroupRollingRule;

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_RULES_RULES_H_
