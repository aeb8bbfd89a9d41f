// What of a reduction is done once to its result in place of to each of its terms.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_FINISH_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_FINISH_H_

#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// What a reduction's result is combined with once, in the stage's axes.
struct Finish {
  Op op;
  Expr operand;
  Expr where;  // null: everywhere
};

// A reduction's terms, and what need not be done with each of them: sum(A[i, r] * B[r] * S[i] / 8)
// has the terms A * B, and the result is multiplied by S and divided by 8; a maximum of prefixes
// takes what it leaves out once (BoundedScanOf). Other reductions have their body, and no finish.
struct FinishedReduction {
  Expr terms;
  std::vector<Finish> by;
};

// Of each stage of the program. Rounding differs from the definition's, within what is allowed for
// another order of additions.
std::vector<FinishedReduction> FinishedReductions(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_FINISH_H_
