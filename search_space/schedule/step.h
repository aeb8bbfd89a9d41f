// Schedule steps: a schedule is a plain list of these values. Stages and loops are named by text,
// so that a step can be stored, served and read by people; parse(print(steps)) == steps.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/schedule/copies/fetch.h"
#include "search_space/schedule/copies/in_flight.h"
#include "search_space/schedule/copies/interleave.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/schedule/loops/fuse.h"
#include "search_space/schedule/loops/reorder.h"
#include "search_space/schedule/loops/reverse.h"
#include "search_space/schedule/loops/rfactor.h"
#include "search_space/schedule/loops/skip_masked.h"
#include "search_space/schedule/loops/split.h"
#include "search_space/schedule/loops/unroll.h"
#include "search_space/schedule/loops/vectorize.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/rolling_update.h"
#include "search_space/schedule/matrix/row_fragment.h"
#include "search_space/schedule/matrix/tensorize.h"
#include "search_space/schedule/placement/compute_again.h"
#include "search_space/schedule/placement/compute_at.h"
#include "search_space/schedule/placement/compute_inline.h"
#include "search_space/schedule/placement/compute_with.h"
#include "search_space/schedule/placement/gather_read.h"
#include "search_space/schedule/placement/materialize.h"
#include "search_space/schedule/placement/reduce_beside.h"
#include "search_space/schedule/rewrites/algebra/hoist_factors.h"
#include "search_space/schedule/rewrites/algebra/join_sums.h"
#include "search_space/schedule/rewrites/algebra/narrow_factors.h"
#include "search_space/schedule/rewrites/algebra/quotient.h"
#include "search_space/schedule/rewrites/algebra/separate_decay.h"
#include "search_space/schedule/rewrites/algebra/separate_window.h"
#include "search_space/schedule/rewrites/algebra/shift_moments.h"
#include "search_space/schedule/rewrites/algebra/winograd.h"
#include "search_space/schedule/rewrites/axes/collapse.h"
#include "search_space/schedule/rewrites/axes/merge_axes.h"
#include "search_space/schedule/rewrites/axes/outline.h"
#include "search_space/schedule/rewrites/axes/pad_terms.h"
#include "search_space/schedule/rewrites/axes/permute.h"
#include "search_space/schedule/rewrites/axes/phases.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "search_space/schedule/rewrites/axes/split_dim.h"
#include "search_space/schedule/rewrites/axes/take_apart.h"
#include "search_space/schedule/rewrites/reductions/contract.h"
#include "search_space/schedule/rewrites/reductions/expand.h"
#include "search_space/schedule/rewrites/reductions/own_stages.h"
#include "search_space/schedule/rewrites/reductions/recompute.h"
#include "search_space/schedule/rewrites/reductions/reduce_in_parts.h"
#include "search_space/schedule/rewrites/reductions/rows_first.h"
#include "search_space/schedule/rewrites/reductions/scan.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"
#include "search_space/schedule/rewrites/reductions/stack_products.h"
#include "search_space/schedule/storage/align.h"
#include "search_space/schedule/storage/block_layout.h"
#include "search_space/schedule/storage/cache_read.h"
#include "search_space/schedule/storage/cache_write.h"
#include "search_space/schedule/storage/pack.h"
#include "search_space/schedule/storage/set_scope.h"
#include "search_space/schedule/storage/storage_layout.h"
#include "search_space/schedule/threads/bind.h"
#include "search_space/schedule/threads/block_swizzle.h"
#include "search_space/schedule/threads/launch_bounds.h"
#include "search_space/schedule/threads/persist.h"
#include "search_space/schedule/threads/replicate.h"
#include "search_space/schedule/threads/scatter.h"
#include "search_space/schedule/threads/scatter_in_memory.h"
#include "search_space/schedule/threads/share_scan.h"
#include "search_space/schedule/threads/spread.h"

namespace heddle::search_space {

using Step =
    std::variant<Split, Fuse, Reorder, Bind, CacheRead, CacheWrite, GatherRead, SetScope, ComputeAt,
                 ComputeInline, ComputeWith, Fetch, Rfactor, Spread, Replicate, Winograd,
                 CollapseAxes, Vectorize, Unroll, StorageLayout, Align, Pipeline, Interleave,
                 BlockSwizzle, LaunchBounds, Fragment, Tensorize, Phases, BlockLayout, InFlight,
                 SkipMasked, ScanChunks, ShareScan, Reverse, ShiftMoments, PackLayout, Materialize,
                 FlattenAxes, Contract, RowFragment, RollingUpdate, SplitOperand, FlattenSumAxes,
                 Persist, PadTerms, PermuteAxes, ExpandTerms, ReduceInParts, SplitAxis, Quotient,
                 SplitDim, MergeAxes, SeparateDecay, NarrowFactors, Recompute, SeparateWindow,
                 Scatter, ScatterInMemory, HoistFactors, RowsFirst, OwnStages, ReduceBeside,
                 ComputeAgain, JoinSums, Outline, StackProducts, TakeApart>;

// Applies a step or refuses it (InvalidArgument, naming the step, the stage and the reason) and
// leaves the schedule as it was.
absl::Status Apply(const Step& step, Schedule& schedule);
// In turn, up to the first that is refused.
absl::Status Apply(const std::vector<Step>& steps, Schedule& schedule);

// "split(D, i, [8, 4])"
std::string ToString(const Step& step);
// One step a line.
std::string ToString(const std::vector<Step>& steps);
// InvalidArgument names the line, the column and what was expected. Empty lines and comments from
// # to the end of the line are skipped.
absl::StatusOr<std::vector<Step>> ParseSteps(const std::string& text);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_
