#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_FLATTEN_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_FLATTEN_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Neighbouring axes of `stage` that number the positions of windows become one
// (schedule/collapse.h). Comes before all other steps.
struct FlattenAxes {
  std::string stage;

  HEDDLE_PRIMITIVE(FlattenAxes, "flatten", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_FLATTEN_H_
