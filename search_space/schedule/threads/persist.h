#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_PERSIST_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_PERSIST_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The kernel has so many blocks only, which stay: each computes every so many'th iteration of the
// loop that is bound to blocks, one after another. The first tiles of a pipeline of bulk copies are
// fetched for the next iteration while the results of one are stored.
struct Persist {
  std::string stage;
  int64_t blocks;

  HEDDLE_ANNOTATION(Persist, "persist", stage, blocks);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_PERSIST_H_
