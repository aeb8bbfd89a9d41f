// What a kernel computes, in its loop variables and from its storage.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_VALUES_H_
#define HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_VALUES_H_

#include <vector>

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// A stage's definition with its axes replaced by loop variables.
Expr AtLoops(const Schedule& schedule, const ScheduledStage& stage, const Expr& definition);

// Redirects loads from tensors to storage; loads from global memory that are not proven inside
// read zero outside.
Expr Resolve(KernelContext& context, const Expr& e, const Assumptions& assumptions);

// Conditions under which an iteration of the stage's loops may store.
std::vector<Expr> GuardsOf(const Schedule& schedule, const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_VALUES_H_
