#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_WITH_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_WITH_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Computes `stage` in the loops of `leader`: it has none of its own from then on, and is
// initialised, computed, combined and stored where the leader is. `axes` are the leader's that are
// the stage's own, in the stage's order. Two reductions share all their axes; of two elementwise
// stages this one may have fewer, and stores where the leader's others are 0.
struct ComputeWith {
  std::string stage, leader;
  std::vector<std::string> axes;

  HEDDLE_PRIMITIVE(ComputeWith, "compute_with", stage, leader, axes);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_WITH_H_
