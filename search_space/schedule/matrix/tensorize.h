#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_TENSORIZE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_TENSORIZE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Computes the three innermost loops of a sum of products by a matrix instruction: that which its
// stage, a fragment, is an operand of. `m` goes through rows of A, `n` through rows of B and `k`,
// which reduces, through columns of both; these are fragments, too, or, of the instructions of a
// warpgroup, tiles in shared memory that a pipeline fetches.
struct Tensorize {
  std::string stage, m, n, k;

  HEDDLE_ANNOTATION(Tensorize, "tensorize", stage, m, n, k);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_TENSORIZE_H_
