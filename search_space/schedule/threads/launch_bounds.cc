#include "search_space/schedule/threads/launch_bounds.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status LaunchBounds::CheckAt(const Schedule& /*schedule*/, const ScheduledStage& here) const {
  if (!here.is_root()) return Refuse(absl::StrCat(stage, " is not a kernel of its own"));
  if (min_blocks < 1 || min_blocks > 32) return Refuse("min_blocks is 1 to 32");
  return absl::OkStatus();
}

}  // namespace heddle::search_space
