#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_RFACTOR_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_RFACTOR_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Turns a part of a reduction loop into an axis of a new stage "stage.rf" of partial results, which
// `stage` then combines. What is computed with `stage` is factored alike.
struct Rfactor {
  std::string stage, loop;

  HEDDLE_PRIMITIVE(Rfactor, "rfactor", stage, loop);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_RFACTOR_H_
