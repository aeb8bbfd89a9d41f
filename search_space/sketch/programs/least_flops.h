// The fewest operations with which a program can be computed: what a time is plausible by.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_LEAST_FLOPS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_LEAST_FLOPS_H_

#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// The fewest scalar operations with which one of its algorithms (algorithms.h) computes `program`,
// without the terms that masks leave out (skip_masked), and with what is the same for several terms
// computed once for these: at most its Flops(), and at most what is needed.
double LeastFlops(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_LEAST_FLOPS_H_
