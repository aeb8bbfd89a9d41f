#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_REDUCE_IN_PARTS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_REDUCE_IN_PARTS_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// The reductions of rows of `stage`, a sum that nothing else reads, are taken in parts of so many
// columns first (schedule/reduce_in_parts.h). Comes before all other steps.
struct ReduceInParts {
  std::string stage;
  int64_t columns;

  HEDDLE_PRIMITIVE(ReduceInParts, "reduce_in_parts", stage, columns);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_REDUCE_IN_PARTS_H_
