// Elements of a reduction that are read at a few places beside by those who need all of them, such
// as the score of each row's label beside a row's statistics: reduced again where they are read,
// they keep nobody from taking the others as they are made.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_RECOMPUTE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_RECOMPUTE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Has elements of the reduction `stage` that are read at a few places reduced again for these.
// Comes before all other steps.
struct Recompute {
  std::string stage;

  HEDDLE_PRIMITIVE(Recompute, "recompute", stage);
};

// The program in which whoever reads at most a sixteenth as many elements as stage `name`,
// S[a] = combiner(r) e, has, itself or through what is computed elementwise of S, or is the one
// output that waits for what is reduced of S, a product of 16-bit numbers of 512 terms at most, has
// no more elements than S, and takes no root, logarithm or power of what it reads of S, nor divides
// by it, reads
//   S.at0[b] = combiner(r) e at a = f(b)
// in the place of S[f(b)], where b are axes of its own: one such stage, S.at0, S.at1 and so on, for
// each f. InvalidArgument where S is no reduction, or is an output, or nobody reads it so, or
// what is computed of it is compared: sums in another order need not be the same to the last bit.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithRecomputedReads(
    const TensorProgram& program, const std::string& name);

// Those of which all elements are reduced, too.
std::vector<std::string> ReductionsWorthRecomputing(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_RECOMPUTE_H_
