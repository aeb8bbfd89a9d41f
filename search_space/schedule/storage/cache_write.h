#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_CACHE_WRITE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_CACHE_WRITE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Inserts a stage "stage.scope" that computes what `stage` did, which copies it from then on: so
// that it is stored by other threads, or in another order, than it is computed.
struct CacheWrite {
  std::string stage;
  Scope scope;

  HEDDLE_PRIMITIVE(CacheWrite, "cache_write", stage, scope);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_CACHE_WRITE_H_
