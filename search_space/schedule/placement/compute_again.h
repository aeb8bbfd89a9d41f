#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_AGAIN_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_AGAIN_H_

#include <string>

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Substitutes an elementwise stage into one of its readers, which computes it again and need not
// wait for it; the others read what is stored. compute_inline is for a stage that nobody is to
// read.
struct ComputeAgain {
  std::string stage;
  std::string reader;

  HEDDLE_PRIMITIVE(ComputeAgain, "compute_again", stage, reader);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_COMPUTE_AGAIN_H_
