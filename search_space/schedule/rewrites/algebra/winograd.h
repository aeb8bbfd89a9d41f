// Winograd's minimal filtering F(2x2, 3x3) as a rewriting of a tensor program: one reduction
// becomes two transforms of its operands, a reduction that multiplies 16 elements where the
// definition multiplies 36, and a transform of the result.
//
// Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks (CVPR 2016), after
// S. Winograd, Arithmetic Complexity of Computations (SIAM 1980). With data d, weights g and a tile
// of 2x2 results,
//     Y = A^T [ (G g G^T) * (B^T d B) ] A.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_WINOGRAD_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_WINOGRAD_H_

#include <vector>

#include "absl/status/statusor.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Puts the stages of WinogradStages in the place of `stage`, a sum over a 3x3 window.
struct Winograd {
  std::string stage;

  HEDDLE_PRIMITIVE(Winograd, "winograd", stage);
};

// The stages that take the place of stage `index` of `schedule`, in definition order:
//   S.u[g, ...]      = G g G^T     the weights; g runs over the 16 elements of a transformed tile
//   S.v[g, ..., t]   = B^T d B     the data, a 4x4 patch for every tile t of 2x2 results
//   S.m.acc[g, ..., t] = sum(...) S.u * S.v     over what S reduced besides the 3x3 window
//   S.m              = S.m.acc
//   S                = A^T m A
// InvalidArgument unless S is the sum over a 3x3 window with step 1, and over at least one more
// axis, of a product of two tensors: one read at [.., y + ry, .., x + rx, ..], the other at
// [.., ry, .., rx, ..], every other index an axis of its own or a
// constant. Of what lies outside the data, only
// results outside S depend; reads there give zero.
absl::StatusOr<std::vector<ScheduledStage>> WinogradStages(const Schedule& schedule, int index);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_WINOGRAD_H_
