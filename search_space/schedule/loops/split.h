#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_SPLIT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_SPLIT_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Splits a loop into factors.size() + 1 loops; factors are the extents of all but the outermost,
// which becomes ceil(extent / product). The parts of `i` are named i.0, i.1, ... outermost first.
struct Split {
  std::string stage, loop;
  std::vector<int64_t> factors;

  HEDDLE_PRIMITIVE(Split, "split", stage, loop, factors);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_SPLIT_H_
