// A kernel that adds up the partial results of a split reduction.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_COMBINE_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_COMBINE_H_

#include <cstdint>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/sketch/kernels/schedule_writer.h"

namespace heddle::search_space {

// `root`, an elementwise stage, reads `reduction`, which adds up `parts` layers of `partials`: one
// tensor for it and for each that is computed with it.
struct Combination {
  StageRef root, reduction;
  std::vector<StageRef> partials;
  int64_t parts;
};

// Schedules `root` as a kernel of its own: one element or a short vector of them a thread, the
// parts read by loads that do not wait for one another.
void WriteCombineKernel(ScheduleWriter& w, const Combination& c, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_COMBINE_H_
