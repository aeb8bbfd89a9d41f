#include "search_space/schedule/primitives/winograd.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/winograd.h"

namespace heddle::search_space {

absl::Status Winograd::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (here->consumer >= 0 || HasAttached(schedule, *here) || !here->untouched ||
      schedule.HasCompanions(*here)) {
    return Refuse(absl::StrCat(stage, " is scheduled already"));
  }
  const int index = schedule.IndexOf(*here);
  HEDDLE_ASSIGN_OR_RETURN(made, WinogradStages(schedule, index));
  *here = std::move(made.back());
  made.pop_back();
  editor.Insert(index, std::move(made));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
