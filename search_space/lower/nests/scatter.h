// Reductions of scattered terms (scatter): a nest over their terms that all threads share.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_NESTS_SCATTER_H_
#define HEDDLE_SEARCH_SPACE_LOWER_NESTS_SCATTER_H_

#include <vector>

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// Computes the region of stage `s`, and of what is computed with it, whose storage is there.
Stmt EmitScatter(KernelContext& context, int s, const Assumptions& assumptions);

// The bodies of the kernels, one after another, that compute stage `s`, and what is computed with
// it, in global memory (scatter_in_memory) by the threads of blocks `block`.
std::vector<Stmt> EmitScatterInMemory(KernelContext& context, int s, const Var& block);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_NESTS_SCATTER_H_
