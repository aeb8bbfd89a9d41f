#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_STORAGE_LAYOUT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_STORAGE_LAYOUT_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Physical layout of a cached stage: axis order outermost first, elements of padding appended to
// each innermost row, XOR swizzle with chunks of `swizzle` elements (0 = none).
struct StorageLayout {
  std::string stage;
  std::vector<std::string> order;
  int64_t pad, swizzle;

  HEDDLE_ANNOTATION(StorageLayout, "storage_layout", stage, order, pad, swizzle);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_STORAGE_LAYOUT_H_
