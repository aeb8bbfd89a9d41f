#include "search_space/schedule/matrix/row_fragment.h"

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

const Var& RowOf(const ScheduledStage& stage) {
  const auto* rows = stage.Note<RowFragment>();
  const std::string& name = rows != nullptr ? rows->row : stage.Note<Fragment>()->row;
  return stage.axes[stage.AxisOf(name)];
}

absl::Status RowFragment::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  if (!here.is_reduction() || here.scope != Scope::kLocal || here.consumer >= 0 ||
      schedule.HasCompanions(here)) {
    return Refuse(
        absl::StrCat("row_fragment wants a reduction of its own in scope local before it "
                     "is computed in any loop; ",
                     stage, " is not one"));
  }
  if (here.FindAxis(row) < 0) return Refuse(absl::StrCat(stage, " has no axis ", row));
  return absl::OkStatus();
}

absl::Status RowFragment::CheckRegion(const ScheduledStage& here, const std::vector<Expr>& base,
                                      const std::vector<int64_t>& extent) const {
  for (size_t i = 0; i < extent.size(); ++i) {
    const bool is_row = here.axes[i]->name == row;
    const ModRem m = ModulusRemainder(base[i]);
    const int64_t of_matrix = Extent(here.axes[i]->name);
    if (extent[i] % of_matrix == 0 && m.modulus % of_matrix == 0 && m.remainder % of_matrix == 0 &&
        (is_row || extent[i] == 1)) {
      continue;
    }
    return Refuse(absl::StrCat("a warp would hold ", extent[i], " elements of axis ",
                               here.axes[i]->name, " of ", stage, " from ", ToString(base[i]),
                               " on, which are no rows of whole matrices"));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
