// Sketches of stages that are computed together.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_TOGETHER_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_TOGETHER_H_

#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/plans.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Adds those with stages computed together: as one kernel, or else in the kernels that remain. They
// take the place of what the rules make of the `definition`'s stages one by one, but for the
// simplest and, where only a fallback can do a kernel of them, the last of these, whose kernels
// know most; and of nothing that multiplies matrices where they do not.
void AddTogether(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 const std::vector<Plans>& definition, std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_TOGETHER_H_
