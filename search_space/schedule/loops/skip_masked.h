#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_SKIP_MASKED_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_SKIP_MASKED_H_

#include "search_space/schedule/primitive.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// Leaves out, a tile at a time, what a mask says is of no use to a sum: terms with a factor
// select(c, x, 0) where no thread of the block has c, and all terms of a result that is only read
// under such a condition. c compares indices, those in tensors of indices among them. A factor
// exp(s - max) of scores s that are -1e30 at most where c does not hold is zero there, too, where a
// row always has one for which it does. For finite inputs, of which zero times anything is zero.
struct SkipMasked {
  std::string stage;

  HEDDLE_PRIMITIVE(SkipMasked, "skip_masked", stage);
};

// Of `reduction`, which goes over the terms of `sum` along with it (rolling_update.h): do its terms
// change nothing where those of the sum are left out (sum.useful), by masks of its own? A maximum
// of all terms may not be one of some, also where it only says what others are relative to: what is
// made of these need not be the same for any.
bool MayBeLeftOutWith(const Schedule& schedule, const ScheduledStage& sum,
                      const ScheduledStage& reduction);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_LOOPS_SKIP_MASKED_H_
