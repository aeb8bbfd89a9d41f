#include "search_space/schedule/threads/scatter_in_memory.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/threads/scatter.h"

namespace heddle::search_space {

absl::Status ScatterInMemory::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  constexpr int64_t kMostThreads = 1024;
  HEDDLE_RETURN_IF_ERROR(Scatter::CheckStages(schedule, here));
  if (here.scope != Scope::kGlobal || !here.is_root()) {
    return Refuse(absl::StrCat("scatter_in_memory wants a stage in scope global that is computed ",
                               "in no other's loops; ", stage, " is not one"));
  }
  if (threads < 1 || threads > kMostThreads || blocks < 1 || blocks > INT32_MAX / threads) {
    return Refuse(absl::StrCat("scatter_in_memory wants blocks of 1 to ", kMostThreads,
                               " threads, and less than 2^31 threads in all"));
  }
  if (const int64_t widest = WidestUpdate(schedule, here); vector < 1 || widest % vector != 0) {
    return Refuse(absl::StrCat("scatter_in_memory adds to ", widest, " elements of ", stage,
                               " at once at most, or half as many; ", vector, " were asked for"));
  }
  return Scatter::CheckUnroll(unroll);
}

bool IsScatteredInMemory(const Schedule& schedule, const ScheduledStage& stage) {
  const ScheduledStage& nest = schedule.NestOf(stage);
  return nest.is_root() && nest.scope == Scope::kGlobal && nest.Note<ScatterInMemory>() != nullptr;
}

}  // namespace heddle::search_space
