// Expressions whose values are numbers of 16 bits, though they are computed in float32.
#ifndef HEDDLE_SEARCH_SPACE_IR_HALF_EXPR_H_
#define HEDDLE_SEARCH_SPACE_IR_HALF_EXPR_H_

#include "search_space/ir/expr.h"

namespace heddle::search_space {

// `e`, of float32, as an expression of a 16-bit type where all its values are numbers of that type:
// it is made of what was widened from there, numbers that the type has, choices between them, their
// negatives, magnitudes, maxima and minima. nullptr otherwise.
Expr AsHalf(const Expr& e);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_HALF_EXPR_H_
