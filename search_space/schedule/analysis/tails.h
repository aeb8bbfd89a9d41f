#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_TAILS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_TAILS_H_

#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// Is `e`, a part of a stage's definition, zero wherever `axis` lies past its end? True for loads
// along that axis from tensors of the same extent, also through copies, conversions and padding,
// and for what is computed of nothing else and is zero for zeros: out there, lowering fills zeros.
// Of stages, those known to be in global memory: outputs and what is materialized, or, `placed`,
// all at the root, since where they are computed is decided (tails.cc).
bool IsZeroOutside(const Schedule& schedule, const Expr& e, const Var& axis, bool placed);

// May `guard`, left by splitting a reduction loop of the stage's nest, go because past the end the
// body adds zero? All factors must vanish: infinity times zero would not. `placed`: where every
// stage is computed is decided already.
bool VanishesOutside(const Schedule& schedule, const ScheduledStage& stage, const Expr& guard,
                     bool placed);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_TAILS_H_
