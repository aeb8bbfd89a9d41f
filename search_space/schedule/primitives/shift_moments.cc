#include "search_space/schedule/primitives/shift_moments.h"

#include <algorithm>

#include "search_space/schedule/editor.h"
#include "search_space/schedule/moments.h"

namespace heddle::search_space {

absl::Status ShiftMoments::ApplyTo(ScheduleEditor& editor) const {
  const std::vector<ScheduledStage>& stages = editor.stages();
  const bool scheduled = std::any_of(stages.begin(), stages.end(), [](const ScheduledStage& s) {
    return s.consumer >= 0 || s.leader != nullptr || !s.untouched;
  });
  if (scheduled || stages.size() != Schedule(editor.shared_program()).stages().size()) {
    return Refuse("it comes before all other steps");
  }
  HEDDLE_ASSIGN_OR_RETURN(program, WithShiftedMoments(editor.schedule().program(), stage));
  editor.StartOver(std::move(program));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
