#include "search_space/schedule/primitives/flatten_sum.h"

#include "search_space/schedule/collapse.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status FlattenSumAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, FlattenSum);
}

}  // namespace heddle::search_space
