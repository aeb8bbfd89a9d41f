// What is known of the levels of sums that decay (prefix_reductions.h).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_FALLING_LEVELS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_FALLING_LEVELS_H_

#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// Does nothing provably grow on the way from a term of `stage`, of which `mask` is true, to an
// element? So it is where levels are sums of prefixes of what never is positive, such as minus what
// is absolute or an exponential. False where nothing is known, as of inputs.
bool DoLevelsFall(const Schedule& schedule, const ScheduledStage& stage, const PrefixMask& mask);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_FALLING_LEVELS_H_
