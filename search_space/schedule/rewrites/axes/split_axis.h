// Axes of which the definition reads quotients and remainders, such as the positions i of attention
// in blocks of w, whose keys are K[i / w * w + j], as two axes: the number of the block and the
// place in it. What is read by quotients is then the same for all places, and the sum a product of
// matrices for each block.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_SPLIT_AXIS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_SPLIT_AXIS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Two axes, of blocks and of `width` places in each, take the place of `axis` of `stage`, and of
// those along which other stages read its elements. Comes before all other steps.
struct SplitAxis {
  std::string stage;
  std::string axis;
  int64_t width;

  HEDDLE_PRIMITIVE(SplitAxis, "split_axis", stage, axis, width);
};

// The program with two axes, `axis` of extent / width and one of `width`, in the place of `axis` of
// stage `name`, and of the axes of other stages along which they read one another's elements
// [.., axis, ..], and of reductions along what is read of inputs so. Tensors keep their names and
// their elements' order in memory, outputs and inputs too; inputs that are read in other ways as
// well are read at [axis * width + place]. Who reads one part, such as H[i, j + width], reads that.
// InvalidArgument where there is no such stage or axis, `width` does not divide its extent into
// parts of at least two, or a stage reads elements along it in another way.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitAxis(const TensorProgram& program,
                                                                   const std::string& name,
                                                                   const std::string& axis,
                                                                   int64_t width);

// On which of the two that an axis is split into a load depends.
struct PartsRead {
  bool block, place;
};

// The parts are of `width` elements, the first one begins `shift` elements before the axis.
PartsRead PartsReadBy(const Expr& load, const Var& axis, int64_t width, int64_t shift = 0);

struct AxisParts {
  std::string stage, axis;
  int64_t width;
};
// An axis of a reduction that is worth it: two factors of the terms are a product of matrices
// along the places of a block, and of blocks only along these. None where there is no such axis.
std::optional<AxisParts> AxisWorthSplitting(const TensorProgram& program);

// The elements of so many parts are held at a time.
inline constexpr int64_t kMostPartsRead = 4;

// Of each reduction that is read, element by element, in two to four parts of an axis, all of it
// together, such as the halves of H in H[i, j] * sigmoid(H[i, j]) * H[i, j + width], that axis; or
// whose readers have such an axis themselves and read other parts at the same place, as a rotary
// embedding does. Parts are also read through elementwise stages between, such as a product and its
// bias.
std::vector<AxisParts> AxesReadInParts(const TensorProgram& program);

// The reductions of which elements are read so along an axis that is two to four elements long
// already, such as the gates of a cell, T[i, 0, j] and T[i, 1, j].
std::vector<std::string> ReductionsReadByNumber(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_SPLIT_AXIS_H_
