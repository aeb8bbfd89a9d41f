#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_REPLICATE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_REPLICATE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Adds an innermost loop "lane" of `threads` iterations to a kernel's stage, of which the last
// stores: threads that only help with the reductions computed inside.
struct Replicate {
  std::string stage;
  int64_t threads;

  HEDDLE_PRIMITIVE(Replicate, "replicate", stage, threads);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_REPLICATE_H_
