// Which region of a stage its readers need.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_BOUNDS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_BOUNDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// A register tile may span this many times the elements that are used: strided convolutions read
// every second to fourth element of a row.
inline constexpr int64_t kMaxHoles = 4;

// The region of `producer` that all its readers need when it is computed inside `loop` of stage
// `consumer` in its present scope: on return `base` and `extent` have, of each of its axes, where
// that begins, in variables of loops around the place, and how long it is. InvalidArgument, with
// the stage and the reason: nothing reads it, a reader is not in the loop, a register tile would
// span more than kMaxHoles times what is used, no whole warps are there to hold a fragment.
absl::Status InferRegion(const Schedule& schedule, const ScheduledStage& producer, int consumer,
                         const Var& loop, std::vector<Expr>& base, std::vector<int64_t>& extent);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_BOUNDS_H_
