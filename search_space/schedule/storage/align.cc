#include "search_space/schedule/storage/align.h"

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/copies/fetch.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Align::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  const int at = here->FindAxis(axis);
  if (at < 0) return Refuse(absl::StrCat(stage, " has no axis ", axis));
  if (here->consumer < 0 || !here->untouched || here->Note<Fetch>() != nullptr ||
      HasAttached(editor.schedule(), *here) || multiple < 1) {
    return Refuse(absl::StrCat("align comes between compute_at and other changes to ", stage,
                               ", with a multiple of at least 1"));
  }
  const auto i = static_cast<size_t>(at);
  // Padding shifts the address that is read against the axis: x - 1 is aligned where x is not.
  int64_t shift = 0;
  Visit(here->body, [&](const Expr& node) {
    if (node->op != Op::kLoad) return;
    for (const Expr& index : node->args) {
      const Expr d = Simplify(index - VarExpr(here->axes[i]));
      if (d->op == Op::kInt) shift = d->int_value;
    }
  });
  const Expr start =
      Simplify((here->base[i] + Int(shift)) / Int(multiple) * Int(multiple) - Int(shift));
  // How far the old start can lie behind the new one.
  const int64_t slack = BoundsOf(here->base[i] - start).max;
  here->base[i] = start;
  here->extent[i] = (here->extent[i] + slack + multiple - 1) / multiple * multiple;
  ResetLoops(*here);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
