#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_MERGE_AXES_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_MERGE_AXES_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// One axis takes the place of two of `stage` that lie together in what it reads
// (schedule/merge_axes.h). Comes before all other steps.
struct MergeAxes {
  std::string stage;
  std::string outer;
  std::string inner;

  HEDDLE_PRIMITIVE(MergeAxes, "merge_axes", stage, outer, inner);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_MERGE_AXES_H_
