#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_INLINE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_INLINE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Substitutes an elementwise stage into its readers. An output is still written: its readers
// compute it again.
struct ComputeInline {
  std::string stage;

  HEDDLE_PRIMITIVE(ComputeInline, "compute_inline", stage);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_INLINE_H_
