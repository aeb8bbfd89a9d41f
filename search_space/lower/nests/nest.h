// The loop nests of a kernel's stages, those of attached stages inside those of their consumers.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_
#define HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_

#include <cstddef>

#include "search_space/lower/kernel_context.h"
#include "search_space/lower/nests/carried.h"

namespace heddle::search_space {

// All of a stage: its nest, or its fetch.
Stmt EmitStage(KernelContext& context, int s, const Assumptions& assumptions);
// The loops of stage `s` from `depth` on, around its computation.
Stmt EmitLoops(KernelContext& context, int s, size_t depth, Carried carried);
// What stands inside one loop: attached stages, then the rest of the nest.
Stmt EmitLoopBody(KernelContext& context, int s, size_t depth, const Carried& carried);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_
