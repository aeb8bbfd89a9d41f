#include "search_space/schedule/primitives/collapse.h"

#include "search_space/schedule/collapse.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status CollapseAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, Collapse);
}

}  // namespace heddle::search_space
