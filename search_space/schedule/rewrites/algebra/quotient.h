// Reductions whose elements at several fixed places of an axis are divided before they are put
// together, as the two halves of differential attention are: O[0, i] / L[0, i] - s * O[1, i] / L[1,
// i]. With a stage for the quotients what is divided is the last of a chain over all places, which
// the rules for chains know.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_QUOTIENT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_QUOTIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The elements of the reduction `stage`, each divided as all of its readers do, become a stage of
// their own. Comes before all other steps.
struct Quotient {
  std::string stage;

  HEDDLE_PRIMITIVE(Quotient, "quotient", stage);
};

// The program with stage `name`.quotient[c, i, x] = name[c, i, x] / L[c, i], for the stage L, as
// long as `name` along the axes that it has, by whose elements all readers of `name` divide, at all
// fixed places of some axes:
//   Y[i, x] = name[0, i, x] / L[0, i] - s[i] * name[1, i, x] / L[1, i]          becomes
//   Y[i, x] = name.quotient[0, i, x] - s[i] * name.quotient[1, i, x]
// A product is divided before it is multiplied by s, which rounds otherwise. InvalidArgument where
// there is no such stage, it is an output or no reduction, or it is read in another way.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithQuotient(const TensorProgram& program,
                                                                  const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_QUOTIENT_H_
