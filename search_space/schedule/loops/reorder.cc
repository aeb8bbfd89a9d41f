#include "search_space/schedule/loops/reorder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Reorder::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  std::vector<size_t> positions;
  for (const std::string& name : loops) {
    HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, name));
    positions.push_back(at);
  }
  std::vector<size_t> slots = positions;
  std::sort(slots.begin(), slots.end());
  if (std::adjacent_find(slots.begin(), slots.end()) != slots.end()) {
    return Refuse("reorder names a loop twice");
  }
  if (HasAttached(editor.schedule(), *here)) {
    return Refuse(
        absl::StrCat("reorder the loops of ", stage, " before other stages are computed in them"));
  }
  const std::vector<Loop> old = here->loops;
  for (size_t i = 0; i < slots.size(); ++i) here->loops[slots[i]] = old[positions[i]];
  here->untouched = false;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
