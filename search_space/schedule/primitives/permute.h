#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PERMUTE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PERMUTE_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// The axes of `stage`, which is no output, are put into the given order (schedule/permute.h). Comes
// before all other steps.
struct PermuteAxes {
  std::string stage;
  std::vector<std::string> axes;

  HEDDLE_PRIMITIVE(PermuteAxes, "permute", stage, axes);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PERMUTE_H_
