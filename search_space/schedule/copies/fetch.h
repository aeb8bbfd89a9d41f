#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_FETCH_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_FETCH_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// All threads of the block fill a shared stage together, `vector` elements an access.
struct Fetch {
  std::string stage;
  int64_t threads, vector;

  HEDDLE_ANNOTATION(Fetch, "fetch", stage, threads, vector);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_FETCH_H_
