// What the kernels of a program may take, in closed form, before any of them is lowered.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_KERNEL_ESTIMATE_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_KERNEL_ESTIMATE_H_

#include "search_space/ir/target.h"
#include "search_space/sketch/kernels/kernels.h"

namespace heddle::search_space {

// What they move and what they compute, that of an operand again for every tile that reads it, as
// the analytic time adds these, by as much of the device as there are blocks for, microseconds;
// infinite where several kernels are merged for which there is no rule.
double EstimateUs(const ProgramShape& shape, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_KERNEL_ESTIMATE_H_
