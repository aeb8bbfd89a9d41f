#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_MATERIALIZE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_MATERIALIZE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// An elementwise stage becomes a kernel of its own, whose result its readers load, instead of being
// computed in each of them. Behind gather_read it stores an operand as a reduction reads it: rows
// that an index chooses, one behind the other.
struct Materialize {
  std::string stage;

  HEDDLE_PRIMITIVE(Materialize, "materialize", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_MATERIALIZE_H_
