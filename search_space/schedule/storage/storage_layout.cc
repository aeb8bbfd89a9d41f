#include "search_space/schedule/storage/storage_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status StorageLayout::CheckAt(const Schedule& /*schedule*/,
                                    const ScheduledStage& here) const {
  if (here.scope == Scope::kGlobal) {
    return Refuse(absl::StrCat(stage, " is in global memory; only caches have a layout"));
  }
  std::vector<int> axes;
  for (const std::string& name : order) {
    const int axis = here.FindAxis(name);
    if (axis < 0 || std::count(axes.begin(), axes.end(), axis) > 0) {
      return Refuse(absl::StrCat("the layout of ", stage, " must name each of its ",
                                 here.axes.size(), " axes once"));
    }
    axes.push_back(axis);
  }
  if (axes.size() != here.axes.size() || pad < 0 || swizzle < 0 ||
      (swizzle > 0 && (!IsVectorWidth(swizzle) || pad > 0))) {
    return Refuse(absl::StrCat("a layout orders all axes of ", stage,
                               " and either pads or swizzles by a vector width"));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
