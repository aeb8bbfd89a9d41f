#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_FUSE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_FUSE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Fuses adjacent loops, outermost first, into one named "a@b".
struct Fuse {
  std::string stage;
  std::vector<std::string> loops;

  HEDDLE_PRIMITIVE(Fuse, "fuse", stage, loops);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_FUSE_H_
