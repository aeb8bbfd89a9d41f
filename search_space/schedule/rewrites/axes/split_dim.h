// Dimensions of inputs that number two things, such as the rows of all heads' weights in
// W[p * d + x, r], as two dimensions: what reads one head reads a box of the tensor then.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_SPLIT_DIM_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_SPLIT_DIM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Two dimensions, the inner one of `width` elements, take the place of dimension `dim` of the input
// `tensor`. Comes before all other steps.
struct SplitDim {
  std::string tensor;
  int64_t dim;
  int64_t width;

  HEDDLE_PRIMITIVE(SplitDim, "split_dim", tensor, dim, width);
};

// The program whose input `name` has, in the place of dimension `dim`, from 0, one of extent /
// width and one of `width`: W[.., e, ..] is read at W[.., e / width, e % width, ..]. Its elements
// keep their order in memory. InvalidArgument where there is no such input or dimension, or `width`
// does not divide it into parts of at least two.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitDim(const TensorProgram& program,
                                                                  const std::string& name,
                                                                  int64_t dim, int64_t width);

struct DimParts {
  std::string input;
  int64_t dim, width;
};
// A dimension of an input of 16-bit numbers, which bulk copies fetch in boxes, that reductions
// read, and all only at block * width + place, where the two are made of axes without quotients.
// The widest parts are found first; of rows, whole accesses. None where there is no such dimension.
std::optional<DimParts> DimWorthSplitting(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_SPLIT_DIM_H_
