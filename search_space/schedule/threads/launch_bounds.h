#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_LAUNCH_BOUNDS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_LAUNCH_BOUNDS_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Asks for at least so many resident blocks of the kernel on a multiprocessor.
struct LaunchBounds {
  std::string stage;
  int64_t min_blocks;

  HEDDLE_ANNOTATION(LaunchBounds, "launch_bounds", stage, min_blocks);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_LAUNCH_BOUNDS_H_
