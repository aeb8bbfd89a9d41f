#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PHASES_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PHASES_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Computes a sum of which a stride leaves most terms zero by phases: puts the stages of
// schedule/phases.h in the place of `stage`.
struct Phases {
  std::string stage;

  HEDDLE_PRIMITIVE(Phases, "phases", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PHASES_H_
