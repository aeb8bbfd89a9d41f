#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_SET_SCOPE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_SET_SCOPE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Says in which memory a stage lies, before compute_at: the region that is computed there depends
// on it.
struct SetScope {
  std::string stage;
  Scope scope;

  HEDDLE_PRIMITIVE(SetScope, "set_scope", stage, scope);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_SET_SCOPE_H_
