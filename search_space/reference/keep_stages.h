// Which elements of a program are computed whole before single ones are. Not for users of the
// reference.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_KEEP_STAGES_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_KEEP_STAGES_H_

#include <set>
#include <vector>

#include "search_space/ir/tensor_program.h"
#include "search_space/reference/kept.h"

namespace heddle::search_space {

// Makes and keeps the inputs that are read often, of up to 2^26 elements all together: `reads` is
// of how many elements of each, one after the other.
void KeepInputs(const TensorProgram& program, const std::vector<double>& reads, int threads,
                Kept& kept);

// Computes and keeps those of `stages`, of up to 2^26 elements all together, that others read and
// that cost more than their inputs, or whose terms name their places. Of the latter each term is
// looked at once, of others each element is computed once, and the same whatever the threads. Those
// of `in_one_pass` are kept, too, unless it turns out that a look at each term is not enough.
void KeepStages(const TensorProgram& program, const std::set<int>& stages,
                const std::set<int>& in_one_pass, int threads, Kept& kept);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_KEEP_STAGES_H_
