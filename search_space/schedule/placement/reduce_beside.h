#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_REDUCE_BESIDE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_REDUCE_BESIDE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Reduces a stage's terms where the kernel of `leader`, an elementwise stage, computes the elements
// of the same place, such as the gradient of a norm's weights where its rows' gradients are made:
// one pass over the rows does both. `axes` of the leader are in the place of the stage's own and
// then of its reduced ones. These number rows, which the leader's last axis runs along, as the
// stage's last one does. Of every `rows` of them, which belong to one block, the kernel stores the
// result of each column in stage.parts[part, column]; what is left of `stage` reduces these.
// `groups`: equal parts of the block, each with rows of its own, of which all parts of the threads
// have the same columns. A thread keeps what it has in registers from row to row, and the groups
// combine theirs behind the last one.
// The same of what is computed with the stage.
struct ReduceBeside {
  std::string stage, leader;
  std::vector<std::string> axes;
  int64_t rows, groups;

  HEDDLE_PRIMITIVE(ReduceBeside, "reduce_beside", stage, leader, axes, rows, groups);
  // The stage of the parts keeps it, as it would an annotation.
  static constexpr bool kIsNote = true;
};

// The step for a stage whose axes are the leader's in this order.
ReduceBeside BesideRowsOf(const ScheduledStage& leader, const ScheduledStage& stage, int64_t rows,
                          int64_t groups);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PLACEMENT_REDUCE_BESIDE_H_
