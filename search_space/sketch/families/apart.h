// Sketches that keep reductions of one kernel apart.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_APART_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_APART_H_

#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/partition.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Adds those with kernels of their own for reductions that one kernel had. Where only a fallback
// can do a kernel of several reductions, such as a sum of products that have no operand in common,
// all but one are kernels of their own, whose results it reads. Reductions that can be computed
// together are kept apart, too, where no rule knows them together, or where more of them multiply
// matrices so. Returns what was divided so.
std::vector<Partitioned> AddApart(const std::shared_ptr<const TensorProgram>& program,
                                  const Target& target, const ProgramShape& definition,
                                  std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_APART_H_
