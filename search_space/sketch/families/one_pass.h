// Sketches of reductions over rows that something else is made of, too, in one pass over these.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ONE_PASS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ONE_PASS_H_

#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Adds those with reductions over all rows in two (rows_first.h): all that is made of a row in one
// kernel, and what the rows' results are reduced to behind it. Few long rows are many shorter ones
// for that (split_axis.h). Statistics of the rows that others reduce are stored by the one kernel.
void AddRowsFirst(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                  std::vector<Sketch>& sketches);

// Adds those with reductions over rows beside what is made of these (reduce_beside.h).
void AddBeside(const std::shared_ptr<const TensorProgram>& program, const Target& target,
               std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ONE_PASS_H_
