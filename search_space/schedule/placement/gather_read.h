#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_GATHER_READ_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_GATHER_READ_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The inverse of compute_inline: operand number `operand` of `reader` (operands.h, counted from 0)
// becomes an elementwise stage "reader.operandN" over the reader's axes on which it depends, in the
// order of memory. The reader reads its own element of that, whatever the operand read before:
// several tensors, one at two places, at indices with divisions.
struct GatherRead {
  std::string reader;
  int64_t operand;

  HEDDLE_PRIMITIVE(GatherRead, "gather_read", reader, operand);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_GATHER_READ_H_
