#include "search_space/schedule/placement/materialize.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Materialize::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (here->is_reduction()) {
    return Refuse(absl::StrCat(stage, " reduces; only what elementwise stages compute is inlined"));
  }
  if (here->is_output || here->materialized) {
    return Refuse(absl::StrCat(stage, " is a kernel of its own already"));
  }
  if (here->consumer >= 0 || here->scope != Scope::kGlobal) {
    return Refuse(absl::StrCat(stage, " is computed in a kernel of its readers"));
  }
  here->materialized = true;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
