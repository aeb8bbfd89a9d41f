// What an elementwise stage computes anew for each of many elements although it depends on few of
// their axes, such as the biases of attention that tables give for relative positions, which all
// batches share: with a stage of its own it may be stored.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_OUTLINE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_OUTLINE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Parts of the elementwise `stage` become stages of their own. Comes before all other steps.
struct Outline {
  std::string stage;

  HEDDLE_PRIMITIVE(Outline, "outline", stage);
};

// The program in which each largest part of the elementwise stage `name` that reads where indices
// say and is the same for several elements, since it does not mention all axes, is a stage
// `name`.outer0, `name`.outer1 and so on over those that it mentions:
//   S[z, p, i, j] = T[z, p, i, j] + B[U[j - i + n], p]                       becomes
//   S.outer0[p, i, j] = B[U[j - i + n], p]
//   S[z, p, i, j] = T[z, p, i, j] + S.outer0[p, i, j]
// What is computed only where a condition holds stays under it. InvalidArgument where there is no
// such part.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithOutlined(const TensorProgram& program,
                                                                  const std::string& name);
// Is it the name of such a part?
bool IsOutlined(const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_OUTLINE_H_
