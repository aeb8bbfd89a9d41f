// What the kernel of an elementwise stage reduces beside it, over its rows (reduce_beside).
#ifndef HEDDLE_SEARCH_SPACE_LOWER_NESTS_BESIDE_H_
#define HEDDLE_SEARCH_SPACE_LOWER_NESTS_BESIDE_H_

#include <cstddef>

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// Of the loops of stage `s`, which of them is the first that no blocks or threads share, where
// something is reduced beside it that has no registers yet; -1 where that is not so. Around it
// stands what EmitBeside makes.
int LoopOfBeside(const KernelContext& context, int s);

// Do groups of threads combine what they have reduced beside stage `s`, behind the loops from
// `depth` on?
bool CombinesBeside(const KernelContext& context, int s, size_t depth);

// Registers for all that is reduced beside stage `s`, in whose nest the loops from `depth` on are
// those of one thread.
void AllocateBeside(KernelContext& context, int s, size_t depth);

// One term of `member`, which is reduced beside the stage `s`: `value`.
Stmt ReduceTerm(KernelContext& context, int s, int member, const Expr& value);

// `rows`, the loops from `depth` on, with what starts before them and is stored behind them.
Stmt EmitBeside(KernelContext& context, int s, size_t depth, const Stmt& rows);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_NESTS_BESIDE_H_
