#include "search_space/schedule/primitives/split_operand.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/split_operand.h"

namespace heddle::search_space {

absl::Status SplitOperand::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithSplitOperand);
}

}  // namespace heddle::search_space
