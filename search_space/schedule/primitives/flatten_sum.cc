#include "search_space/schedule/primitives/flatten_sum.h"

#include "search_space/schedule/collapse.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status FlattenSumAxes::ApplyTo(ScheduleEditor& editor) const {
  if (!editor.IsUnscheduled()) return Refuse("it comes before all other steps");
  HEDDLE_ASSIGN_OR_RETURN(program, FlattenSum(editor.schedule().program(), stage));
  editor.StartOver(std::move(program));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
