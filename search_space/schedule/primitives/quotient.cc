#include "search_space/schedule/primitives/quotient.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/quotient.h"

namespace heddle::search_space {

absl::Status Quotient::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithQuotient);
}

}  // namespace heddle::search_space
