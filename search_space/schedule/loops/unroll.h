#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_UNROLL_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_UNROLL_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Has every iteration of a loop written out.
struct Unroll {
  std::string stage, loop;

  HEDDLE_PRIMITIVE(Unroll, "unroll", stage, loop);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_UNROLL_H_
