#include "search_space/schedule/primitives/shift_moments.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/moments.h"

namespace heddle::search_space {

absl::Status ShiftMoments::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithShiftedMoments);
}

}  // namespace heddle::search_space
