// From a schedule to kernels.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_LOWER_H_
#define HEDDLE_SEARCH_SPACE_LOWER_LOWER_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "search_space/ir/stmt.h"
#include "search_space/lower/passes/passes.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// One kernel per root stage, or several (scatter_in_memory), in definition order. Runs the passes
// of passes.h in order. InvalidArgument when the schedule has no kernel form (a shared stage that
// nobody fetches, bound loops inside serial ones, ...), naming the stage.
absl::StatusOr<Program> Lower(const Schedule& schedule);
// The same of the kernels whose root stages `wanted` admits: a program of these alone.
absl::StatusOr<Program> Lower(const Schedule& schedule,
                              absl::FunctionRef<bool(const ScheduledStage&)> wanted);
// The same; `observe` sees each kernel on its way through the passes.
absl::StatusOr<Program> Lower(const Schedule& schedule,
                              absl::FunctionRef<bool(const ScheduledStage&)> wanted,
                              PassObserver observe);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_LOWER_H_
