#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_REVERSE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_REVERSE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Computes at a loop's first iteration what its last one computed, and so on: of blocks, which are
// started in order, those that have most to do may be started first.
struct Reverse {
  std::string stage, loop;

  HEDDLE_PRIMITIVE(Reverse, "reverse", stage, loop);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_REVERSE_H_
