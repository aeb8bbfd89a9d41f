// Schedule steps: a schedule is a plain list of these values. Stages and loops are named by text,
// so that a step can be stored, served and read by people; parse(print(steps)) == steps.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/schedule/primitives/align.h"
#include "search_space/schedule/primitives/bind.h"
#include "search_space/schedule/primitives/block_layout.h"
#include "search_space/schedule/primitives/block_swizzle.h"
#include "search_space/schedule/primitives/cache_read.h"
#include "search_space/schedule/primitives/cache_write.h"
#include "search_space/schedule/primitives/collapse.h"
#include "search_space/schedule/primitives/compute_at.h"
#include "search_space/schedule/primitives/compute_inline.h"
#include "search_space/schedule/primitives/compute_with.h"
#include "search_space/schedule/primitives/contract.h"
#include "search_space/schedule/primitives/expand.h"
#include "search_space/schedule/primitives/fetch.h"
#include "search_space/schedule/primitives/flatten.h"
#include "search_space/schedule/primitives/flatten_sum.h"
#include "search_space/schedule/primitives/fragment.h"
#include "search_space/schedule/primitives/fuse.h"
#include "search_space/schedule/primitives/gather_read.h"
#include "search_space/schedule/primitives/in_flight.h"
#include "search_space/schedule/primitives/interleave.h"
#include "search_space/schedule/primitives/launch_bounds.h"
#include "search_space/schedule/primitives/materialize.h"
#include "search_space/schedule/primitives/merge_axes.h"
#include "search_space/schedule/primitives/pack.h"
#include "search_space/schedule/primitives/pad_terms.h"
#include "search_space/schedule/primitives/permute.h"
#include "search_space/schedule/primitives/persist.h"
#include "search_space/schedule/primitives/phases.h"
#include "search_space/schedule/primitives/pipeline.h"
#include "search_space/schedule/primitives/quotient.h"
#include "search_space/schedule/primitives/reduce_in_parts.h"
#include "search_space/schedule/primitives/reorder.h"
#include "search_space/schedule/primitives/replicate.h"
#include "search_space/schedule/primitives/reverse.h"
#include "search_space/schedule/primitives/rfactor.h"
#include "search_space/schedule/primitives/rolling_update.h"
#include "search_space/schedule/primitives/row_fragment.h"
#include "search_space/schedule/primitives/scan.h"
#include "search_space/schedule/primitives/separate_decay.h"
#include "search_space/schedule/primitives/set_scope.h"
#include "search_space/schedule/primitives/share_scan.h"
#include "search_space/schedule/primitives/shift_moments.h"
#include "search_space/schedule/primitives/skip_masked.h"
#include "search_space/schedule/primitives/split.h"
#include "search_space/schedule/primitives/split_axis.h"
#include "search_space/schedule/primitives/split_dim.h"
#include "search_space/schedule/primitives/split_operand.h"
#include "search_space/schedule/primitives/spread.h"
#include "search_space/schedule/primitives/storage_layout.h"
#include "search_space/schedule/primitives/tensorize.h"
#include "search_space/schedule/primitives/unroll.h"
#include "search_space/schedule/primitives/vectorize.h"
#include "search_space/schedule/primitives/winograd.h"

namespace heddle::search_space {

using Step =
    std::variant<Split, Fuse, Reorder, Bind, CacheRead, CacheWrite, GatherRead, SetScope, ComputeAt,
                 ComputeInline, ComputeWith, Fetch, Rfactor, Spread, Replicate, Winograd,
                 CollapseAxes, Vectorize, Unroll, StorageLayout, Align, Pipeline, Interleave,
                 BlockSwizzle, LaunchBounds, Fragment, Tensorize, Phases, BlockLayout, InFlight,
                 SkipMasked, ScanChunks, ShareScan, Reverse, ShiftMoments, PackLayout, Materialize,
                 FlattenAxes, Contract, RowFragment, RollingUpdate, SplitOperand, FlattenSumAxes,
                 Persist, PadTerms, PermuteAxes, ExpandTerms, ReduceInParts, SplitAxis, Quotient,
                 SplitDim, MergeAxes, SeparateDecay>;

// "split(D, i, [8, 4])"
std::string ToString(const Step& step);
// One step a line.
std::string ToString(const std::vector<Step>& steps);
// InvalidArgument names the line, the column and what was expected. Empty lines and comments from
// # to the end of the line are skipped.
absl::StatusOr<std::vector<Step>> ParseSteps(const std::string& text);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_
