#include "search_space/schedule/threads/persist.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Persist::CheckAt(const Schedule& /*schedule*/, const ScheduledStage& here) const {
  if (!here.is_root()) return Refuse(absl::StrCat(stage, " is not a kernel of its own"));
  const auto bound = std::find_if(here.loops.begin(), here.loops.end(),
                                  [](const Loop& l) { return l.kind == LoopKind::kBlock; });
  if (bound == here.loops.end()) {
    return Refuse(absl::StrCat("bind a loop of ", stage, " to block first"));
  }
  if (blocks < 1 || blocks >= bound->var->extent) {
    return Refuse(absl::StrCat("of ", bound->var->extent, " iterations of ", bound->var->name,
                               " blocks may stay for 1 to ", bound->var->extent - 1));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
