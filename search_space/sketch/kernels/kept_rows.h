// Statistics of rows of which another statistic of the same rows is made, and which others read,
// too, as the maxima of a softmax: one kernel makes both.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KEPT_ROWS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KEPT_ROWS_H_

#include <optional>
#include <string>
#include <vector>

#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// A kernel that makes two statistics of rows.
struct KeptRows {
  BufferRef root;                     // what is made of the one that needs the other
  std::vector<BufferRef> reductions;  // of both
};

// Has `stage`, an elementwise stage of reductions, be computed with the first stage as large that
// is made of a reduction which reads it, and computed again where that reads it, so that the kernel
// does not wait for itself; adds the steps to `steps`. nullopt where there is no such stage, or its
// reduction reads other rows of the first.
std::optional<KeptRows> KeepRows(Schedule& schedule, const std::string& stage,
                                 std::vector<Step>& steps);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KEPT_ROWS_H_
