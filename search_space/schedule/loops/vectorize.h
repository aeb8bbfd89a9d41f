#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_VECTORIZE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_VECTORIZE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Makes the innermost data loop the lanes of wide accesses, where lowering proves them wide.
struct Vectorize {
  std::string stage, loop;

  HEDDLE_PRIMITIVE(Vectorize, "vectorize", stage, loop);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_VECTORIZE_H_
