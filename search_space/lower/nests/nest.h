// The loop nests of a kernel's stages, those of attached stages inside those of their consumers.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_
#define HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_

#include <vector>

#include "search_space/lower/kernel_context.h"

namespace heddle::search_space {

// What loops hand on to those inside them.
struct Carried {
  std::vector<Expr> guards;  // conditions that do not stand anywhere yet
  Assumptions assumptions;
  int only = -1;  // the one stage, of those that the loops compute, that these compute; -1 = all
  bool tested = false;  // does all this stand where it may be of use (skip_masked)?
  Stmt started;  // what each iteration of the loop that copies are interleaved with starts, or null
};

// All of a stage: its nest, or its fetch.
Stmt EmitStage(KernelContext& context, int s, const Assumptions& assumptions);
// The loops of stage `s` from `depth` on, around its computation.
Stmt EmitLoops(KernelContext& context, int s, size_t depth, Carried carried);
// What stands inside one loop: attached stages, then the rest of the nest.
Stmt EmitLoopBody(KernelContext& context, int s, size_t depth, const Carried& carried);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_
