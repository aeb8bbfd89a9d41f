#include "search_space/schedule/threads/share_scan.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status ShareScan::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  if (!ScanOf(here).has_value()) {
    return Refuse(absl::StrCat(stage,
                               " is no reduction over select(r <= j, e, identity) of an axis j, "
                               "which e does not mention, or as a factor exp(L(j) - L(r)), and a "
                               "reduced axis r as long"));
  }
  if (ScanOf(here)->level != nullptr && group == ScanGroup::kNeighbours) {
    return Refuse(absl::StrCat("the terms of ", stage, " decay: threads of slices share it"));
  }
  if (here.scope != Scope::kLocal || here.consumer >= 0 || schedule.HasCompanions(here)) {
    return Refuse(absl::StrCat("share_scan wants a stage in scope local before its compute_at, ",
                               "which is computed alone; ", stage, " is not one"));
  }
  const bool neighbours = group == ScanGroup::kNeighbours;
  const bool runs = neighbours ? IsVectorWidth(vector) : vector >= 1;
  if (!runs || threads < 2 || (neighbours && !IsPowerOfTwo(threads))) {
    return Refuse(
        "share_scan wants at least 2 threads and runs of at least 1 element, of neighbours a power "
        "of two of threads and runs of 1, 2, 4, 8 or 16");
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
