#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_AXIS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_AXIS_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Two axes, of blocks and of `width` places in each, take the place of `axis` of `stage`, and of
// those along which other stages read its elements (schedule/split_axis.h). Comes before all other
// steps.
struct SplitAxis {
  std::string stage;
  std::string axis;
  int64_t width;

  HEDDLE_PRIMITIVE(SplitAxis, "split_axis", stage, axis, width);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_AXIS_H_
