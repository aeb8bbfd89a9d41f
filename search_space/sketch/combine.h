// Steps that add up the partial results of a split reduction.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_COMBINE_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_COMBINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// `root`, an elementwise stage, reads `reduction`, which adds up `parts` layers of `partials` along
// its loop `loop`.
struct Combination {
  std::string root, reduction, partials, loop;
  int64_t parts;
  std::vector<std::string> root_axes, axes;  // of root, and of reduction
  std::vector<int64_t> extents;
};

// Schedules `root` as a kernel of its own: one element or a short vector of them a thread, the
// parts read by loads that do not wait for one another.
void AppendCombineKernel(const Combination& c, const Target& target, std::vector<Step>& steps);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_COMBINE_H_
