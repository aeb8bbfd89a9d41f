#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_REORDER_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_REORDER_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Puts the named loops, into the given order, at the positions that they occupy together.
struct Reorder {
  std::string stage;
  std::vector<std::string> loops;

  HEDDLE_PRIMITIVE(Reorder, "reorder", stage, loops);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_REORDER_H_
