#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SCATTER_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SCATTER_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Has the threads of a block make a reduction of scattered terms (ScatteredTermsOf), and what is
// computed with it, together: a stage in scope shared that is not attached yet. Each term is looked
// at once, `unroll` of them by a thread at a time, and combined, by an atomic update, with the
// element that its index names, in place of being compared with all of them. In which order is not
// said, so that sums may differ in their last bits from run to run.
struct Scatter {
  std::string stage;
  int64_t unroll;

  // Of a block, that have the columns of one term: elements at its place along other axes.
  static int64_t ThreadsOfTerm(int64_t threads, int64_t columns);
  // Are the stages of a nest scattered, all along the same axes, and in float32?
  static absl::Status CheckStages(const Schedule& schedule, const ScheduledStage& here);
  static absl::Status CheckUnroll(int64_t unroll);

  HEDDLE_ANNOTATION(Scatter, "scatter", stage, unroll);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SCATTER_H_
