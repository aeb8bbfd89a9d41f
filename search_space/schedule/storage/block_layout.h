#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_BLOCK_LAYOUT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_BLOCK_LAYOUT_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Stores an attached stage of shared memory in blocks of `elements` along `axis`, one block behind
// the other: so instructions of a warpgroup read what is longer than a line of the banks.
struct BlockLayout {
  std::string stage, axis;
  int64_t elements;

  HEDDLE_ANNOTATION(BlockLayout, "block_layout", stage, axis, elements);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_BLOCK_LAYOUT_H_
