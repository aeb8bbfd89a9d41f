// About how many instructions an expression is, for estimates that compare ways to compute it.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_INSTRUCTIONS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_INSTRUCTIONS_H_

#include <vector>

#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

// Of one evaluation: what stands in several places counts once, as compilers compute it, and what
// is `outside` nothing. An instruction of the special function unit counts as eight.
double Instructions(const Expr& e, const std::vector<Expr>& outside = {});
// Of a term of a sum over `reduce_axes`, by a thread that computes before them what all its terms
// share.
double InstructionsOfTerm(const Expr& e, const std::vector<Var>& reduce_axes);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_INSTRUCTIONS_H_
