#include "search_space/schedule/primitives/winograd.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/winograd.h"

namespace heddle::search_space {

absl::Status Winograd::ApplyTo(ScheduleEditor& editor) const {
  return editor.Rewrite(stage, WinogradStages);
}

}  // namespace heddle::search_space
