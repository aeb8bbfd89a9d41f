#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_TAILS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_TAILS_H_

#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// May `guard`, left by splitting a reduction loop of the stage's nest, go because past the end the
// body adds zero? All factors must vanish: infinity times zero would not. `placed`: where every
// stage is computed is decided already.
bool VanishesOutside(const Schedule& schedule, const ScheduledStage& stage, const Expr& guard,
                     bool placed);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_TAILS_H_
