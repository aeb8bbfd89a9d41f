#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PAD_TERMS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PAD_TERMS_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// The terms of `stage`, which other stages of the program make, become a multiple of so many
// (schedule/pad_terms.h), as the first step of a schedule.
struct PadTerms {
  std::string stage;
  int64_t multiple;

  HEDDLE_PRIMITIVE(PadTerms, "pad_terms", stage, multiple);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_PAD_TERMS_H_
