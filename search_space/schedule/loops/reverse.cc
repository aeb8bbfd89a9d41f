#include "search_space/schedule/loops/reverse.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Reverse::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, loop));
  if (HasAttached(editor.schedule(), *here)) {
    return Refuse(
        absl::StrCat("reverse the loops of ", stage, " before other stages are computed in them"));
  }
  const Loop& reversed = here->loops[at];
  if (reversed.kind == LoopKind::kVector || reversed.reduce) {
    return Refuse(absl::StrCat("loop ", loop, " of ", stage,
                               reversed.reduce ? " reduces: the order of a sum stays as it is"
                                               : " is a vector, whose elements stay in order"));
  }
  const Var var = reversed.var;
  ReplaceVar(*here, var, Int(var->extent - 1) - VarExpr(var));
  here->untouched = false;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
