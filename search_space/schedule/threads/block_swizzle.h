#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_BLOCK_SWIZZLE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_BLOCK_SWIZZLE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Groups `rows` rows of blocks, so that blocks that run together share more of L2.
struct BlockSwizzle {
  std::string stage;
  int64_t rows;

  HEDDLE_PRIMITIVE(BlockSwizzle, "block_swizzle", stage, rows);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_BLOCK_SWIZZLE_H_
