// Dimensions that are only ever walked together, as one: a 1x1 convolution reads and writes whole
// images row after row, and is a matrix product over their pixels. Other convolutions are one over
// the positions of their windows.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_COLLAPSE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_COLLAPSE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Computes over fewer dimensions: those of extent 1 go, and neighbouring axes of `stage` that are
// only ever walked together become one. Comes before all other steps.
struct CollapseAxes {
  std::string stage;

  HEDDLE_PRIMITIVE(CollapseAxes, "collapse", stage);
};

// The same program over fewer dimensions: without those of extent 1, and with adjacent axes y, x of
// `stage` as one axis "yx" wherever every tensor that is read along one of them is read along both,
// in adjacent dimensions [.., y, x, ..] of the same extents. Tensors keep their names and their
// elements' order in memory. InvalidArgument where no two axes of `stage` can be merged.
absl::StatusOr<std::shared_ptr<const TensorProgram>> Collapse(const TensorProgram& program,
                                                              const std::string& stage);

// Neighbouring axes of `stage` that number the positions of windows, or are short, become one.
// Comes before all other steps.
struct FlattenAxes {
  std::string stage;

  HEDDLE_PRIMITIVE(FlattenAxes, "flatten", stage);
};

// The same program without dimensions of extent 1, and with adjacent axes y, x of `stage` as one
// axis "yx" wherever all that is read along one of them is read along both, windows of a tensor
// among it, such as X[.., y + r, x + s, ..]: positions of windows are then rows of one matrix, and
// X is read at [.., yx / extent of x + r, yx % extent of x + s, ..]. So are the elements of
// patches, X[.., y, .., x, ..], where x is shorter than a matrix. Tensors that the program computes
// have the fewer dimensions, inputs stay as they are. InvalidArgument where no two axes of `stage`
// can be merged so.
absl::StatusOr<std::shared_ptr<const TensorProgram>> Flatten(const TensorProgram& program,
                                                             const std::string& stage);

// The axes that `stage`, a sum of products, is summed along become one. Comes before all other
// steps but those that change the definition, too.
struct FlattenSumAxes {
  std::string stage;

  HEDDLE_PRIMITIVE(FlattenSumAxes, "flatten_sum", stage);
};

// The same program with one axis in the place of all those that the product `stage` is summed
// along: the elements of a small window, such as the 7 x 7 x 3 of a network's first convolution,
// are then a row of one matrix. What is multiplied is zero where the axis, whose extent is a
// multiple of what units for matrices multiply at once, goes on behind the last of them.
// InvalidArgument where the stage is no sum of products along several axes.
absl::StatusOr<std::shared_ptr<const TensorProgram>> FlattenSum(const TensorProgram& program,
                                                                const std::string& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_COLLAPSE_H_
