#include "search_space/schedule/storage/set_scope.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status SetScope::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (here->consumer >= 0) {
    return Refuse(
        absl::StrCat("set the scope of ", stage, " before compute_at: its region depends on it"));
  }
  if (here->is_output && scope != Scope::kGlobal) {
    return Refuse(absl::StrCat(stage, " is an output; outputs live in global memory"));
  }
  if (here->materialized && scope != Scope::kGlobal) {
    return Refuse(absl::StrCat(stage, " is a kernel of its own; it lives in global memory"));
  }
  if (!here->is_reduction() && editor.schedule().HasCompanions(*here)) {
    return Refuse(absl::StrCat(stage,
                               " and what is computed with it are kernels' results; they "
                               "live in global memory"));
  }
  here->scope = scope;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
