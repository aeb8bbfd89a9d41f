#include "search_space/schedule/primitives/split_operand.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/split_operand.h"

namespace heddle::search_space {

absl::Status SplitOperand::ApplyTo(ScheduleEditor& editor) const {
  if (!editor.IsUnscheduled()) return Refuse("it comes before all other steps");
  HEDDLE_ASSIGN_OR_RETURN(program, WithSplitOperand(editor.schedule().program(), stage));
  editor.StartOver(std::move(program));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
