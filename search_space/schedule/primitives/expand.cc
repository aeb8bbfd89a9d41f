#include "search_space/schedule/primitives/expand.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/expand.h"

namespace heddle::search_space {

absl::Status ExpandTerms::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithExpandedTerms);
}

}  // namespace heddle::search_space
