// What compute_inline and compute_again do to a definition that reads an elementwise stage.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_INLINE_LOADS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_INLINE_LOADS_H_

#include <string>

#include "search_space/ir/expr/expr.h"
#include "search_space/schedule/scheduled_stage.h"

namespace heddle::search_space {

// Why the producer is not to be substituted into the reader, whose definition would be longer than
// it may be (inline_limits.h); empty where it is not.
std::string WhyNotInlined(const ScheduledStage& producer, const ScheduledStage& reader);

// Substitutes an elementwise definition into an expression that reads it.
Expr InlineLoads(const Expr& e, const ScheduledStage& producer);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_INLINE_LOADS_H_
