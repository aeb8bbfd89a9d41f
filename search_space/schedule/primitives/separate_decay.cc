#include "search_space/schedule/primitives/separate_decay.h"

#include "search_space/schedule/decay.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status SeparateDecay::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithSeparateDecay);
}

}  // namespace heddle::search_space
