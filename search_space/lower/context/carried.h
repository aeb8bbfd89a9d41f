#ifndef HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_CARRIED_H_
#define HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_CARRIED_H_

#include <vector>

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// What loops hand on to those inside them.
struct Carried {
  std::vector<Expr> guards;  // conditions that do not stand anywhere yet
  Assumptions assumptions;
  int only = -1;  // the one stage, of those that the loops compute, that these compute; -1 = all
  bool tested = false;  // does all this stand where it may be of use (skip_masked)?
  Stmt started;  // what each iteration of the loop that copies are interleaved with starts, or null
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_CARRIED_H_
