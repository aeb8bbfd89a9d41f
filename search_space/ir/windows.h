// Windows that move along data, as the taps of a convolution do: X[c, y + a, x + e].
#ifndef HEDDLE_SEARCH_SPACE_IR_WINDOWS_H_
#define HEDDLE_SEARCH_SPACE_IR_WINDOWS_H_

#include <cstdint>
#include <vector>

#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

// Does an index of `load` depend on the term `tap` of a reduction and on one of its axes `data`?
bool MovesAlong(const Expr& load, const Var& tap, const std::vector<Var>& data);

// The longest axis of a window of which neighbours read almost all that one reads.
inline constexpr int64_t kLongestWindow = 31;

// How many elements the windows of a reduction of `body` over `terms` have: the product of the
// extents of those terms, no longer than that, that move along data in one of its loads; 1 where
// none does.
int64_t TapsOf(const Expr& body, const std::vector<Var>& data, const std::vector<Var>& terms);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_WINDOWS_H_
