// Where threads hold elements of stages that they keep in registers together.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_HELD_H_
#define HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_HELD_H_

#include "search_space/lower/context/kernel_context.h"
#include "search_space/schedule/threads/dealt_axis.h"

namespace heddle::search_space {

// The iteration of a loop of a local stage that this thread makes.
Expr PartOf(const Loop& loop, const Var& thread);

// An expression with the loop variables of attached stages that are bound to thread as the thread's
// number.
Expr OnThread(const KernelContext& context, const Expr& e);

// Where a thread holds element `index` of an axis that `stage` has spread over threads, which must
// be one of its own.
Expr HeldAt(KernelContext& context, const ScheduledStage& stage, const DealtAxis& dealt,
            const Expr& index);

// Where a thread keeps the element at `index`, relative to the region of `stage`, a fragment: the
// matrices along each axis, then the element of this lane. It must be one of its own.
ExprList HeldInFragment(KernelContext& context, const ScheduledStage& stage, ExprList index);

// Where a thread keeps the value of `stage`, a row_fragment, at `index`, relative to its region. It
// must be of one of its own rows.
ExprList HeldInRows(KernelContext& context, const ScheduledStage& stage, ExprList index);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_HELD_H_
