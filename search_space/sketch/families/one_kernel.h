// Sketches that have all of a program in one kernel.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ONE_KERNEL_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ONE_KERNEL_H_

#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Does one of them have rows along another axis than the innermost one in one kernel?
bool HasStridedRows(const std::vector<Sketch>& sketches);

// Adds the kernel of rows along several axes that are only walked together: they are rows along
// one. Where the definition has rows along one already, that is the kernel which knows all of them;
// but strided rows lie side by side along as many axes, so that wider accesses read them.
void AddCollapsedRows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                      std::vector<Sketch>& sketches);

// Adds the kernel whose reductions read one another's results. Where its rows fill what warpgroups'
// instructions multiply, these supersede the others: in 34 sessions of 26 programs that were tuned
// with both, the others had neither the best schedule nor one within 5 % of it, and a tenth of the
// trials.
void AddChain(const std::shared_ptr<const TensorProgram>& program, const Target& target,
              std::vector<Sketch>& sketches);

// Adds the kernel that has one thread for each site (patterns/sites.h).
void AddSites(const std::shared_ptr<const TensorProgram>& program, const Target& target,
              std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ONE_KERNEL_H_
