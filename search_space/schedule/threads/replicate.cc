#include "search_space/schedule/threads/replicate.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Replicate::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (!here->is_root() || here->is_reduction() || HasAttached(editor.schedule(), *here)) {
    return Refuse(
        absl::StrCat("replicate the loops of a kernel's own stage, before other stages "
                     "are computed in them; ",
                     stage, " is not one"));
  }
  if (!IsPowerOfTwo(threads) || here->FindLoop("lane") >= 0) {
    return Refuse("replicate wants a power of two of threads, once");
  }
  const Loop lane{.var = MakeVar("lane", threads)};
  here->guards.push_back(Int(threads - 1) <= VarExpr(lane.var));
  here->loops.push_back(lane);
  here->untouched = false;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
