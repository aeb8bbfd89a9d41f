// What a mask leaves of a tile (skip_masked).
#ifndef HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_MASKED_H_
#define HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_MASKED_H_

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// May some term of sum `s` be of use in an iteration of its loops outside of `depth` and those
// around them? The same for all threads; null = always.
Expr IsUseful(const KernelContext& context, int s, size_t depth);
// Are all of its terms of use in that iteration? 0 where that cannot be; null = they always are.
Expr IsAllUseful(const KernelContext& context, int s, size_t depth);
// Is what its terms are made of computed in that loop of sum `s`, by instructions that multiply
// matrices, or is something taken along with them (rolling_update)? All of it is of as little use
// as the terms are.
bool MakesTermsIn(const KernelContext& context, int s, const Loop& loop);
// May some term be of use of the one sum that all is made for which reads the fetched stage `s`,
// which may be any, where that is filled in the sum's iterations? null = always.
Expr IsFetchUseful(const KernelContext& context, int s);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_MASKED_H_
