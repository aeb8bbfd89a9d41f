#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_COLLAPSE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_COLLAPSE_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Computes over fewer dimensions (schedule/collapse.h): those of extent 1 go, and neighbouring axes
// of `stage` that are only ever walked together become one. Comes before all other steps.
struct CollapseAxes {
  std::string stage;

  HEDDLE_PRIMITIVE(CollapseAxes, "collapse", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_COLLAPSE_H_
