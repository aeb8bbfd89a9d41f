// What a warp or a warpgroup holds together as operands of matrix instructions
// (schedule/matrix/fragment.h).
#ifndef HEDDLE_SEARCH_SPACE_LOWER_MATRIX_FRAGMENTS_H_
#define HEDDLE_SEARCH_SPACE_LOWER_MATRIX_FRAGMENTS_H_

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// Fills the fragment `s`: a copy of what lies in shared memory, or what is computed of it and of
// what the thread holds.
Stmt EmitLoadMatrix(KernelContext& context, int s, const Assumptions& assumptions);

// Takes one term of each of this thread's elements of fragment `s`, which is no product, into what
// it has of these: the term of this iteration of the loops over what it reduces.
Stmt EmitReduceElements(KernelContext& context, int s, const Assumptions& assumptions);

// Sets this thread's elements of fragment `s` to the identity of what they add up.
Stmt EmitInitFragment(KernelContext& context, int s);

// Is stage `s` computed by instructions that read shared memory while the threads go on?
bool MultipliesInBackground(const ScheduledStage& s);

// Do its threads wait for each group of products behind it? So they do but in a pipeline, which
// waits where it needs what they read, of operands in shared memory alone.
bool WaitsForGroups(const KernelContext& context, int s);

// The products of stage `s` in background as a group.
Stmt EmitGroup(const KernelContext& context, int s, const Stmt& products);

// The three innermost loops of fragment `s`, which its annotation Tensorize names.
Stmt EmitMatrixMultiply(KernelContext& context, int s);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_MATRIX_FRAGMENTS_H_
