#include "search_space/schedule/placement/compute_inline.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/placement/inline_loads.h"

namespace heddle::search_space {

absl::Status ComputeInline::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (here->is_reduction()) {
    return Refuse(absl::StrCat(stage, " reduces; only elementwise stages can be inlined"));
  }
  const std::vector<int> readers = editor.schedule().ReadersOf(here->tensor.get());
  if (here->is_output && readers.empty()) {
    return Refuse(absl::StrCat(stage, " is an output, and nothing reads it"));
  }
  if (here->materialized) return Refuse(absl::StrCat(stage, " is a kernel of its own"));
  if (here->consumer >= 0 || HasAttached(editor.schedule(), *here) || !here->untouched ||
      editor.schedule().HasCompanions(*here)) {
    return Refuse(absl::StrCat(stage, " is scheduled already"));
  }
  for (int r : readers) {
    const std::string why = WhyNotInlined(*here, editor.stage(r));
    if (!why.empty()) return Refuse(why);
  }
  for (int r : readers) {
    ScheduledStage& reader = editor.stage(r);
    reader.body = InlineLoads(reader.body, *here);
  }
  here->inlined = !here->is_output;  // which is still to be written
  return absl::OkStatus();
}

}  // namespace heddle::search_space
