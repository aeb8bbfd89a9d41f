// Copies that products of matrices read faster than the tensors that they are of.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_PACKING_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_PACKING_H_

#include <string>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernels.h"

namespace heddle::search_space {

// A copy, by steps behind those of a program.
struct Packing {
  std::string tensor;  // that is copied
  std::vector<Step> steps;

  bool operator==(const Packing& other) const;
};

// The copies that may be worth making behind the steps of `shape`, together; each choice is another
// algorithm, the one with all copies first. Of the products that matrix instructions can compute
// (MatrixKernel), these are of tensors of which neighbours are not fetched at once, such as an
// image whose channels come first, in a layout in which they are (pack): its last dimension is then
// the reduction's axis, or the result's where instructions take that, too, and rows are longer so.
// And of factors that no bulk copy fetches, such as rows that an index chooses, or what is computed
// (gather_read, materialize). Only where copying takes less time than it can save; none where no
// factor is like that.
std::vector<std::vector<Packing>> PackingsOf(const ProgramShape& shape, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_PACKING_H_
