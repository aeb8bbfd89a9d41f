// Stages whose elements are read in another order of axes, such as the heads of attention that its
// result has behind the positions, with their axes in the order of who reads them.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PERMUTE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PERMUTE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The axes of `stage`, which is no output, are put into the given order. Comes before all other
// steps.
struct PermuteAxes {
  std::string stage;
  std::vector<std::string> axes;

  HEDDLE_PRIMITIVE(PermuteAxes, "permute", stage, axes);
};

// The program with the axes of stage `name`, and the dimensions of its tensor, in the order of
// `axes`, their names. What is computed stays the same. InvalidArgument where there is no such
// stage, or it is an output, whose layout is its reader's, or `axes` are not its own.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithPermutedAxes(
    const TensorProgram& program, const std::string& name, const std::vector<std::string>& axes);

struct AxisOrder {
  std::string stage;
  std::vector<std::string> axes;
};
// Of each stage that is no output and that others read only at the element that their own axes
// number, but for one axis along which it may be another, all in one order of these that is not its
// own, that order. What has fewer axes, as what is reduced of rows, is in the order in which they
// come among the readers'; so is what rows are reduced of, where somebody else reads it so, too;
// and a reduction of rows that keep their order keeps its own. One applies behind the other.
std::vector<AxisOrder> OrdersOfReaders(const TensorProgram& program);
// Of each sum of products of 16-bit numbers that is no output and whose last axes both factors
// have, as the channels of T[i, j, x] = sum(k) P[i, k, x] * Q[j, k, x]: those axes in front. The
// rows of one product of matrices are then stored together, and not an element here and there. Each
// factor has rows of its own, and no windows that move along them: the channels of a convolution
// stay last, and what is made of its result is in the same kernel.
std::vector<AxisOrder> OrdersOfBatches(const TensorProgram& program);

// The elementwise stages of 16-bit numbers that several sums of products read, and nobody else, all
// in windows, as convolutions of one padded image X[k, y, x + e] do.
std::vector<std::string> StagesOfSharedWindows(const TensorProgram& program);
// Of each of these whose last axis is not that of the terms, the channels k, that one last. Each
// place of a window then begins where a line of memory does, and one copy of the stage is all that
// they read; what one sum alone reads may be packed for it (pack.h).
std::vector<AxisOrder> OrdersOfWindows(const TensorProgram& program);
// Of each elementwise stage of 16-bit numbers whose rows end inside vectors, as 4001 samples of a
// channel do, and that sums of products alone read, all along one axis of their terms, the
// channels: that one last. Where several read it, or it is made of what a reduction computes, so
// that it is stored once; what one sum alone reads may be packed for it (pack.h).
std::vector<AxisOrder> OrdersOfTerms(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PERMUTE_H_
