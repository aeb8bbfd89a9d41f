// Axes of a product's result that lie together in one factor and apart in the result, as one: of
// the outer products P[i, j, x, y] = sum(t) A[t, i, x] * B[t, j, y] the rows are (i, x) and the
// columns (j, y). Each is a row of a factor in memory then, where x and y alone are too few for a
// tile. So are the terms of a sum along two axes that both factors have next to each other. And so
// are neighbours, as the two axes (y, x) of an image's pixels, which attention reads and reduces
// together: what is behind a product knows rows, and terms, along one axis.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_MERGE_AXES_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_MERGE_AXES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// One axis takes the place of two of `stage` that lie together in what it reads, wherever these are
// read together. Comes before all other steps.
struct MergeAxes {
  std::string stage;
  std::string outer;
  std::string inner;

  HEDDLE_PRIMITIVE(MergeAxes, "merge_axes", stage, outer, inner);
};

// The program with one axis, in the place of `outer`, for the two of stage `name`: P[.., outer, ..,
// inner, ..] becomes P[.., outer * (extent of inner) + inner, ..]; or for two that it reduces. So
// do the axes of stages that read it along two of their own, and dimensions next to each other of
// what it reads along both, whether inputs or stages; reductions, however, only where all that they
// read along one of the two lies along both. What has but one of them is read at a quotient or a
// remainder, and a stage that keeps both reads sums of them. Inputs and outputs keep their
// elements' order in memory, and outputs their axes where these are no neighbours. InvalidArgument
// where there is no such stage or axis, or such axes of an output are meant.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithMergedAxes(const TensorProgram& program,
                                                                    const std::string& name,
                                                                    const std::string& outer,
                                                                    const std::string& inner);

struct AxesToMerge {
  std::string stage, outer, inner;
};
// Of the first product of two tensors which has such axes: two neighbours that only one factor has,
// next to each other, where all that reductions make has them together, and one that the product is
// made of, or makes, reduces both, or has them as rows, the inner one shorter than 256. Or, of
// numbers that units for matrices take, for each factor two that only it has, as its rows, the
// inner one shorter than a tile, which lie apart in the result; or two that it is summed along, the
// inner one as short, which both factors have next to each other. Empty where there are none.
std::vector<AxesToMerge> AxesWorthMerging(const TensorProgram& program);
// Of each factor of each product of two tensors the first such axes: two that number its rows, next
// to each other, the inner one no whole tiles, so that images of 197 tokens each are one matrix
// though something, such as a scale of each image, is read along one of the two. A pair may stand
// in the way of one behind it.
std::vector<AxesToMerge> RowsWorthMerging(const TensorProgram& program);
// Of each product of 16-bit numbers which no output is: a factor's longest axis that is no term,
// and the last axis of the result where that is shorter than a tile and of this factor, too, and
// they lie apart. As the number of a product the last axis would lie across what threads store, a
// line of memory for each element; as rows, both are stored in lines, and whoever reads the result
// finds it so. The factor is read where its elements lie, or as a copy that is packed.
std::vector<AxesToMerge> RowsApartWorthMerging(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_MERGE_AXES_H_
