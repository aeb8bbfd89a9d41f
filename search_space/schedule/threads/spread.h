#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SPREAD_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SPREAD_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Keeps a local stage that is not attached yet spread over groups of `threads` threads: along the
// axis, runs of `vector` elements are dealt out to the threads of a group in turn. Along the last
// axis these are neighbours, along another one threads of the same place in equal parts of the
// block, so that neighbours read what lies side by side. Who reads an element must be the thread
// that holds it.
struct Spread {
  std::string stage, axis;
  int64_t threads, vector;

  HEDDLE_ANNOTATION(Spread, "spread", stage, axis, threads, vector);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SPREAD_H_
