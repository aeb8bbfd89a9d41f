#include "search_space/schedule/storage/block_layout.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status BlockLayout::CheckAt(const Schedule& /*schedule*/, const ScheduledStage& here) const {
  if (here.scope != Scope::kShared || here.consumer < 0) {
    return Refuse(absl::StrCat("block_layout wants a stage in scope shared behind its compute_at; ",
                               stage, " is not one"));
  }
  const int at = here.FindAxis(axis);
  if (at < 0) return Refuse(absl::StrCat(stage, " has no axis ", axis));
  const int64_t extent = here.extent[static_cast<size_t>(at)];
  if (elements < 1 || extent % elements != 0) {
    return Refuse(absl::StrCat(extent, " elements of ", stage, " along ", axis,
                               " are no whole blocks of ", elements));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
