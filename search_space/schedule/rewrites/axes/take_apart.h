// What readers take apart as a stage of its own for each part: the queries, keys and values of a
// packed projection, of which each is an output. Each part is then a product with what is made of
// it behind it, and none is stored to be copied from there.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_TAKE_APART_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_TAKE_APART_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The elements of `stage` at each number of `axis` become a stage. Comes before all other steps.
struct TakeApart {
  std::string stage;
  std::string axis;

  HEDDLE_PRIMITIVE(TakeApart, "take_apart", stage, axis);
};

// The program with a stage `name`.N for each number N of `axis` at which stage `name` is read,
//   T[c: 3, i, j] = sum(r) X[i, r] * W[c, j, r]        Y[i, j] = T[1, i, j] + B[j]        as
//   T.1[i, j] = sum(r) X[i, r] * W[1, j, r]            Y[i, j] = T.1[i, j] + B[j]
// and so on with the others; those at which nobody reads it are gone. InvalidArgument where there
// is no such stage or axis, the stage is an output or has no other axis, a reader names no constant
// number, two are not read or there are more than 16, an input or stage would be read by nobody, or
// the program would be too long.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithTakenApart(const TensorProgram& program,
                                                                    const std::string& name,
                                                                    const std::string& axis);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_TAKE_APART_H_
