#include "search_space/schedule/loops/unroll.h"

#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Unroll::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, loop));
  return SetKind(*here, at, LoopKind::kUnrolled);
}

}  // namespace heddle::search_space
