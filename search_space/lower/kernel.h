// One kernel of a schedule.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_KERNEL_H_
#define HEDDLE_SEARCH_SPACE_LOWER_KERNEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/stmt.h"
#include "search_space/lower/kernel_context.h"
#include "search_space/lower/passes.h"

namespace heddle::search_space {

// The kernel of root stage `root`: the nest of the stage with those of the attached stages inside,
// through all passes. Its arguments are still to be collected.
absl::StatusOr<Kernel> BuildKernel(const Schedule& schedule, int root, const Globals& globals,
                                   const std::string& name, PassObserver observe);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_KERNEL_H_
