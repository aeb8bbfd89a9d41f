// Stages that are computed in the loops of another one.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_COMPUTE_TOGETHER_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_COMPUTE_TOGETHER_H_

#include <vector>

#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// Has `stage` be computed with `leader`, along the leader's first axes, or, as statistics of rows
// along another axis than the last are, along all but one, and adds the step to `steps`; false
// where it cannot.
bool ComputeTogether(Schedule& schedule, std::vector<Step>& steps, const BufferRef& stage,
                     const BufferRef& leader);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_COMPUTE_TOGETHER_H_
