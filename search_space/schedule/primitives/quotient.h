#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_QUOTIENT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_QUOTIENT_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// The elements of the reduction `stage`, each divided as all of its readers do, become a stage of
// their own (schedule/quotient.h). Comes before all other steps.
struct Quotient {
  std::string stage;

  HEDDLE_PRIMITIVE(Quotient, "quotient", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_QUOTIENT_H_
