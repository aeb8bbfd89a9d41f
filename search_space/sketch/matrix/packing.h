// Layouts that products of matrices read faster than those in which their tensors lie.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_PACKING_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_PACKING_H_

#include <vector>

#include "search_space/ir/target.h"
#include "search_space/schedule/primitives/pack.h"
#include "search_space/sketch/kernels.h"

namespace heddle::search_space {

// The steps that may be worth applying behind those of `shape`, together; each choice is another
// algorithm, the one with all steps first. Of the products that matrix instructions can compute
// (MatrixKernel), these copy a tensor of which neighbours are not fetched at once, such as an image
// whose channels come first, to one in which they are: its last dimension is then the reduction's
// axis, or the result's where instructions take that, too, and rows are longer so. Only where
// copying takes less time than it can save; none where no tensor is like that.
std::vector<std::vector<PackLayout>> PackingsOf(const ProgramShape& shape, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_PACKING_H_
