#include "search_space/schedule/primitives/row_fragment.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status RowFragment::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  if (!here.is_reduction() || here.scope != Scope::kLocal || here.consumer >= 0 ||
      schedule.HasCompanions(here)) {
    return Refuse(
        absl::StrCat("row_fragment wants a reduction of its own in scope local before it "
                     "is computed in any loop; ",
                     stage, " is not one"));
  }
  if (here.FindAxis(row) < 0) return Refuse(absl::StrCat(stage, " has no axis ", row));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
