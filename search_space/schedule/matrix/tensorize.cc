#include "search_space/schedule/matrix/tensorize.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/matrix/fragment.h"

namespace heddle::search_space {

absl::Status Tensorize::CheckAt(const Schedule& /*schedule*/, const ScheduledStage& here) const {
  const auto* fragment = here.Note<Fragment>();
  if (fragment == nullptr || fragment->operand != MatrixOperand::kD) {
    return Refuse(absl::StrCat("tensorize wants a stage that is a fragment, operand d; ", stage,
                               " is not one"));
  }
  const MatrixShape& shape = ShapeOf(fragment->instruction);
  if (here.combiner != Combiner::kSum) {
    return Refuse(absl::StrCat(shape.name, " adds up products; ", stage, " is no sum"));
  }
  const std::string* names[] = {&m, &n, &k};
  const int64_t extents[] = {shape.m, shape.n, shape.k};
  for (size_t i = 0; i < 3; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(here, *names[i]));
    const Loop& loop = here.loops[at];
    if (at + 3 != here.loops.size() + i || loop.kind != LoopKind::kSerial ||
        loop.var->extent != extents[i] || loop.reduce != (i == 2)) {
      return Refuse(absl::StrCat(shape.name, " computes the innermost loops of ", stage,
                                 ": two over data of ", shape.m, " and ", shape.n,
                                 " iterations, and one of ", shape.k, " that reduces"));
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
