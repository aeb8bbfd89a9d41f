#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_DIM_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_DIM_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Two dimensions, the inner one of `width` elements, take the place of dimension `dim` of the input
// `tensor` (schedule/split_dim.h). Comes before all other steps.
struct SplitDim {
  std::string tensor;
  int64_t dim;
  int64_t width;

  HEDDLE_PRIMITIVE(SplitDim, "split_dim", tensor, dim, width);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SPLIT_DIM_H_
