// A sum of products of several tensors, a few of them at a time: which pairs are multiplied first
// decides how many multiplications there are. (D. G. A. Smith, J. Gray, opt_einsum, a Python
// package for optimizing contraction order for einsum-like expressions, 2018.)
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_CONTRACT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_CONTRACT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Multiplies the factors of a sum's terms a few at a time, as the first step of a schedule.
struct Contract {
  std::string stage;

  HEDDLE_PRIMITIVE(Contract, "contract", stage);
};

// The program with stage `name`, S[a] = sum(r, q) f * g, where q occurs in f only, in two stages,
//   S.pair0[b] = sum(q) f          b: the other axes of f, of a and of r
//   S[a]       = sum(r) S.pair0 * g
// and each of the two likewise, as long as that takes at most three quarters of the operations. By
// the distributive law terms and their absolute values add up to the same. Of all ways to divide
// the factors the one of fewest operations is taken; S.pair0 has at most four times as many
// elements as the program's inputs and outputs have. InvalidArgument where there is none.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithContractions(const TensorProgram& program,
                                                                      const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_CONTRACT_H_
