#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_EXPAND_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_EXPAND_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// The few terms of the reduction `stage` are written out (schedule/expand.h). Comes before all
// other steps.
struct ExpandTerms {
  std::string stage;

  HEDDLE_PRIMITIVE(ExpandTerms, "expand", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_EXPAND_H_
