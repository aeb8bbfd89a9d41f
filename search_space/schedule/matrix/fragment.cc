#include "search_space/schedule/matrix/fragment.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

int64_t Fragment::Extent(const std::string& axis) const {
  return axis == row ? layout().rows : axis == col ? layout().cols : 1;
}

absl::Status Fragment::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  if (here.scope != Scope::kLocal || here.consumer >= 0 || schedule.HasCompanions(here)) {
    return Refuse(
        absl::StrCat("fragment wants a stage of its own in scope local before its "
                     "compute_at; ",
                     stage, " is not one"));
  }
  if (row == col || here.FindAxis(row) < 0 || here.FindAxis(col) < 0) {
    return Refuse(absl::StrCat("the rows and columns of a fragment are two axes of ", stage));
  }
  const MatrixShape& shape = ShapeOf(instruction);
  const DType type = here.tensor->dtype;
  if (operand == MatrixOperand::kD) {
    if (type != shape.result) {
      return Refuse(absl::StrCat(shape.name, " adds up sums of ", NameOf(shape.result),
                                 ", beside which elements of that type may lie; ", stage,
                                 " is neither"));
    }
  } else if (shape.in_shared && operand == MatrixOperand::kB) {
    return Refuse(absl::StrCat(shape.name, " reads operand b from shared memory"));
  } else if (here.is_reduction() || !shape.Takes(type)) {
    return Refuse(absl::StrCat(shape.name, " multiplies copies of ", NameOf(shape.of[0]), " or ",
                               NameOf(shape.of[1]), "; ", stage, " is none"));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
