#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_FLATTEN_SUM_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_FLATTEN_SUM_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// The axes that `stage`, a sum of products, is summed along become one (schedule/collapse.h). Comes
// before all other steps but those that change the definition, too.
struct FlattenSumAxes {
  std::string stage;

  HEDDLE_PRIMITIVE(FlattenSumAxes, "flatten_sum", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_FLATTEN_SUM_H_
