// Expressions whose values are numbers of a narrower type, though they are computed in float32.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_NARROW_EXPR_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_NARROW_EXPR_H_

#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

// `e`, of float32, as an expression of a narrow type (IsNarrow) where all its values are numbers of
// that type: it is made of what was widened from there, numbers that the type has, choices between
// them, their negatives, magnitudes, maxima and minima. nullptr otherwise.
Expr AsNarrow(const Expr& e);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_NARROW_EXPR_H_
