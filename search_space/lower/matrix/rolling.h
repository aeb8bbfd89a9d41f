// Reductions with a value for each row of what warps hold (schedule/matrix/row_fragment.h): of what
// they hold at once, or taken along with a sum (schedule/matrix/rolling_update.h).
#ifndef HEDDLE_SEARCH_SPACE_LOWER_MATRIX_ROLLING_H_
#define HEDDLE_SEARCH_SPACE_LOWER_MATRIX_ROLLING_H_

#include "absl/functional/function_ref.h"
#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// What stage `s`, a row_fragment that is computed in a loop as others are (compute_at), reduces of
// what the lanes of each row hold by then.
Stmt EmitRowReduction(KernelContext& context, int s, const Assumptions& assumptions);

// What stage `s` computes in a loop of the sum that others are rolled with: apart for iterations of
// which a mask leaves all terms, so that these do not ask for each.
Stmt ApartFromMasked(KernelContext& context, int s, const Assumptions& assumptions,
                     absl::FunctionRef<Stmt(const Assumptions&)> emit);

// Registers for what stage `s` is of all terms so far, where sums depend on it, null where none do:
// these are relative to an earlier value as long as their terms stay small for that.
BufferRef AllocateLatest(KernelContext& context, int s);

// In front of the loop: nothing is taken yet.
Stmt BeginRollingUpdate(KernelContext& context, int s);

// Takes the terms of one iteration of the consumer's loop into stage `s`, and makes good in the
// sums whose terms depend on it for what that changes, once it is much: rarely behind the first
// iterations, so that most leave the sums alone.
Stmt EmitRollingUpdate(KernelContext& context, int s, const Assumptions& assumptions);

// Behind the loop: adds up what the lanes of a row have, or makes good for what is left.
Stmt EndRollingUpdate(KernelContext& context, int s);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_MATRIX_ROLLING_H_
