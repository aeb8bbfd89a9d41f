#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SEPARATE_DECAY_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SEPARATE_DECAY_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// A sum of prefixes whose terms decay with their distance becomes a cumulative sum
// (schedule/decay.h). Comes before all other steps.
struct SeparateDecay {
  std::string stage;

  HEDDLE_PRIMITIVE(SeparateDecay, "separate_decay", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SEPARATE_DECAY_H_
