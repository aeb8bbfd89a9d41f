#include "search_space/schedule/primitives/phases.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/phases.h"

namespace heddle::search_space {

absl::Status Phases::ApplyTo(ScheduleEditor& editor) const {
  return editor.Rewrite(stage, PhaseStages);
}

}  // namespace heddle::search_space
