#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SHIFT_MOMENTS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SHIFT_MOMENTS_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Computes a sum of squared differences from a mean without waiting for the mean (moments.h), as
// the first step of a schedule.
struct ShiftMoments {
  std::string stage;

  HEDDLE_PRIMITIVE(ShiftMoments, "shift_moments", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SHIFT_MOMENTS_H_
