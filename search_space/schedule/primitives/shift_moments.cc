#include "search_space/schedule/primitives/shift_moments.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/moments.h"

namespace heddle::search_space {

absl::Status ShiftMoments::ApplyTo(ScheduleEditor& editor) const {
  if (!editor.IsUnscheduled()) return Refuse("it comes before all other steps");
  HEDDLE_ASSIGN_OR_RETURN(program, WithShiftedMoments(editor.schedule().program(), stage));
  editor.StartOver(std::move(program));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
