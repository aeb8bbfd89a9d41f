#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_DEALT_AXIS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_DEALT_AXIS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "search_space/schedule/scheduled_stage.h"

namespace heddle::search_space {

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

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_DEALT_AXIS_H_
