#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_PIPELINE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_PIPELINE_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

enum class PipelineKind : uint8_t { kRegisters, kAsyncCopy, kBulkCopy };
constexpr auto WordsOf(PipelineKind /*unused*/) {
  return std::array{"registers", "async_copy", "bulk_copy"};
}

// Overlaps the fetches attached to a loop with its body, `depth` buffers deep. At a loop directly
// in one that is pipelined: the register stages attached to it are read an iteration ahead.
struct Pipeline {
  std::string stage, loop;
  PipelineKind kind;
  int64_t depth;

  HEDDLE_ANNOTATION(Pipeline, "pipeline", stage, loop, kind, depth);
  // A stage may have pipelines of two loops.
  bool Replaces(const Pipeline& earlier) const { return loop == earlier.loop; }
};

// The inner one of a stage's two pipelines, in whose loop registers run ahead; null: it has none.
const Pipeline* PrefetchOf(const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_PIPELINE_H_
