#include "search_space/schedule/copies/interleave.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Interleave::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, loop));
  const auto* tiles = here->Note<Pipeline>();
  const int pipelined = tiles != nullptr ? here->FindLoop(tiles->loop) : -1;
  if (pipelined < 0 || static_cast<int>(at) <= pipelined) {
    return Refuse(absl::StrCat("loop ", loop, " does not stand in one that is pipelined"));
  }
  if (tiles->kind != PipelineKind::kAsyncCopy) {
    return Refuse("only asynchronous copies are started in parts");
  }
  const Pipeline* prefetch = PrefetchOf(*here);
  if (prefetch != nullptr && prefetch->loop != loop) {
    return Refuse(absl::StrCat("the registers of ", stage, " run ahead in loop ", prefetch->loop,
                               "; interleave with that one"));
  }
  int64_t parts = 1;
  for (size_t l = static_cast<size_t>(pipelined) + 1; l <= at; ++l) {
    const Loop& between = here->loops[l];
    if (between.IsIterated()) parts *= between.var->extent;
    if (!between.reduce) {
      return Refuse(absl::StrCat("the fetches would be repeated for every ", between.var->name));
    }
  }
  if (prefetch != nullptr) --parts;  // the last iteration reads past the barrier
  if (parts < 2) {
    return Refuse(absl::StrCat("loop ", loop, " has no two iterations to share the fetches"));
  }
  for (Loop& other : here->loops) other.interleaved = false;
  here->loops[at].interleaved = true;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
