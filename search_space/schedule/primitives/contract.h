#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_CONTRACT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_CONTRACT_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Multiplies the factors of a sum's terms a few at a time (schedule/contract.h), as the first step
// of a schedule.
struct Contract {
  std::string stage;

  HEDDLE_PRIMITIVE(Contract, "contract", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_CONTRACT_H_
