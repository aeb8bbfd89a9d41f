#include "search_space/schedule/primitives/flatten.h"

#include "search_space/schedule/collapse.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status FlattenAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, Flatten);
}

}  // namespace heddle::search_space
