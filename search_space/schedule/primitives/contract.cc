#include "search_space/schedule/primitives/contract.h"

#include "search_space/schedule/contract.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Contract::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithContractions);
}

}  // namespace heddle::search_space
