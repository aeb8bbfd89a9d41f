// The loop nests of a kernel's stages, those of attached stages inside those of their consumers.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_
#define HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// All of a stage: its nest, or its fetch.
Stmt EmitStage(KernelContext& context, int s, const Assumptions& assumptions);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_NESTS_NEST_H_
