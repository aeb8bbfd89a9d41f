#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_ALIGN_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_ALIGN_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The cached region along `axis` starts and ends where the index that it reads there is a multiple
// of `multiple` elements.
struct Align {
  std::string stage, axis;
  int64_t multiple;

  HEDDLE_PRIMITIVE(Align, "align", stage, axis, multiple);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_ALIGN_H_
