#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_OPERAND_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_OPERAND_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Multiplies a float32 stage as two parts of bfloat16 (schedule/split_operand.h), as the first step
// of a schedule: `stage` is the sum of the products.
struct SplitOperand {
  std::string stage;

  HEDDLE_PRIMITIVE(SplitOperand, "split_operand", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_OPERAND_H_
