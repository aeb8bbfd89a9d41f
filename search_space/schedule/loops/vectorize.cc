#include "search_space/schedule/loops/vectorize.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Vectorize::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, loop));
  const Loop& l = here->loops[at];
  if (at + 1 != here->loops.size() || l.reduce) {
    return Refuse(absl::StrCat("only the innermost data loop can be vectorized; ", loop, " of ",
                               stage, " is not"));
  }
  if (!IsVectorWidth(l.var->extent)) {
    return Refuse(absl::StrCat("loop ", loop, " has ", l.var->extent,
                               " iterations; split it by 2, 4, 8 or 16 first"));
  }
  if (here->is_reduction()) {
    return Refuse(absl::StrCat(stage, " reduces; vectorize the stages it reads"));
  }
  return SetKind(*here, at, LoopKind::kVector);
}

}  // namespace heddle::search_space
