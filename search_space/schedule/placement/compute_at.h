#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_AT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_AT_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Computes `stage` inside loop `loop` of `consumer`: its axes shrink to the region needed there.
struct ComputeAt {
  std::string stage, consumer, loop;

  HEDDLE_PRIMITIVE(ComputeAt, "compute_at", stage, consumer, loop);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_AT_H_
