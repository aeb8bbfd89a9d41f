#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_INTERLEAVE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_INTERLEAVE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Starts the asynchronous copies of the pipeline around `loop` in equal parts, one in each of its
// iterations, after the registers of that iteration are read: all at once they would keep the
// block's own reads of shared memory waiting. Source: CUTLASS, whose multistage main loop does so.
struct Interleave {
  std::string stage, loop;

  HEDDLE_PRIMITIVE(Interleave, "interleave", stage, loop);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_INTERLEAVE_H_
