// Conditions that neighbours share.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_UNIFORM_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_UNIFORM_H_

#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

// Is the condition, made of comparisons of indices, equal for all values of `var`, whatever the
// other variables are? False also where that is not known.
bool IsUniform(const Expr& condition, const Var& var);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_UNIFORM_H_
