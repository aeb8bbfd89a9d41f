#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_WINOGRAD_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_WINOGRAD_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Computes a sum over a 3x3 window by Winograd's F(2x2, 3x3): puts the stages of
// schedule/winograd.h in the place of `stage`.
struct Winograd {
  std::string stage;

  HEDDLE_PRIMITIVE(Winograd, "winograd", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_WINOGRAD_H_
