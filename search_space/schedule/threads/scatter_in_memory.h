#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SCATTER_IN_MEMORY_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SCATTER_IN_MEMORY_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Has a reduction of scattered terms (ScatteredTermsOf), and what is computed with it, be kernels
// of their own that keep the elements in the device's memory: one sets them to the identity, and of
// the next `blocks` of `threads` each share out the terms, as Scatter has the threads of one block
// do. Of a term `vector` elements along the last axis are added to at once (WidestUpdate). What
// only repeats the reduction, element by element and in its type, may be the same tensor
// (lower.cc).
struct ScatterInMemory {
  std::string stage;
  int64_t blocks, threads;
  int64_t unroll, vector;

  HEDDLE_ANNOTATION(ScatterInMemory, "scatter_in_memory", stage, blocks, threads, unroll, vector);
};

// Is it computed so, itself or with its leader?
bool IsScatteredInMemory(const Schedule& schedule, const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SCATTER_IN_MEMORY_H_
