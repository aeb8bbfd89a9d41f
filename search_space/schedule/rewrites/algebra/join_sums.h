// Sums of products that are added to each other, as one of all their terms: the input's and the
// state's part of a recurrent cell, a layer and its low-rank adapter, both halves of a symmetric
// update. One kernel has them all in the same registers then.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_JOIN_SUMS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_JOIN_SUMS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The sum `stage` has the terms of those that its readers add to it, too. Comes before all other
// steps.
struct JoinSums {
  std::string stage;

  HEDDLE_PRIMITIVE(JoinSums, "join_sums", stage);
};

// The program with stage `name` and another one,
//   T[a] = sum(r: n) f * g        U[a] = sum(s: m) h * k        Y[..] = .. T[x] + U[x] ..
// each read in such sums alone, where f and h, and g and k, depend on the same of the axes a and
// are of one type, as
//   T[a] = sum(r: n + m) select(r < n, f, h) * select(r < n, g, k)        s being r - n
//   Y[..] = .. T[x] ..
// and so on with all that is added to T. What is summed along several axes is along one that
// numbers them all. A number that U is multiplied with where it is added, as the scale of a
// low-rank adapter, is one that an elementwise stage is, h or k, which U alone reads, and once. It
// is rounded once then, not before it is scaled and after. Scales between 2^-20 and 2^20, or of
// float16 between 1/8 and 1, are taken: others might leave the type's range, as these do for
// numbers that are about to. A sum of several products, T[a] = sum(r: n) f * g + h * k, may be a
// result: it is such a sum of 2 n terms by itself. InvalidArgument where there is nothing of that
// kind.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithJoinedSums(const TensorProgram& program,
                                                                    const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_JOIN_SUMS_H_
