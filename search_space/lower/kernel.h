// The kernels of a schedule's stages.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_KERNEL_H_
#define HEDDLE_SEARCH_SPACE_LOWER_KERNEL_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/stmt.h"
#include "search_space/lower/context/kernel_context.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {

// The kernel of root stage `root`: the nest of the stage with those of the attached stages inside,
// through all passes. Several, to be run in turn, where the stage says so (scatter_in_memory).
// Their names begin with numbers from `first` on, and their arguments are still to be collected.
absl::StatusOr<std::vector<Kernel>> BuildKernels(const Schedule& schedule, int root,
                                                 const Globals& globals, size_t first,
                                                 PassObserver observe);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_KERNEL_H_
