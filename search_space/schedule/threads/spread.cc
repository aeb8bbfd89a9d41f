#include "search_space/schedule/threads/spread.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Spread::CheckAt(const Schedule& /*schedule*/, const ScheduledStage& here) const {
  if (here.scope != Scope::kLocal || here.is_reduction() || here.consumer >= 0) {
    return Refuse(
        absl::StrCat("spread wants an elementwise stage in scope local before its "
                     "compute_at; ",
                     stage, " is not one"));
  }
  if (here.FindAxis(axis) < 0) {
    return Refuse(absl::StrCat(stage, " has no axis ", axis, " to be spread"));
  }
  if (!IsPowerOfTwo(threads) || !IsVectorWidth(vector)) {
    return Refuse("spread wants a power of two of threads and a vector of 1, 2, 4, 8 or 16");
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
