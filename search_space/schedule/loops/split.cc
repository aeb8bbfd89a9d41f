#include "search_space/schedule/loops/split.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Split::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, loop));
  HEDDLE_RETURN_IF_ERROR(CheckNothingAttachedAt(editor.schedule(), *here, at));
  if (factors.empty()) return Refuse("split needs at least one factor");
  const Loop old = here->loops[at];
  if (old.kind != LoopKind::kSerial) {
    return Refuse(absl::StrCat("loop ", loop, " is bound or annotated already"));
  }
  int64_t product = 1;
  for (int64_t f : factors) {
    if (f < 1 || __builtin_mul_overflow(product, f, &product)) {
      return Refuse(absl::StrCat("split factors must be at least 1, got [",
                                 absl::StrJoin(factors, ", "), "]"));
    }
  }
  const int64_t outer = (old.var->extent - 1) / product + 1;
  std::vector<Loop> parts;
  Expr value;
  for (size_t i = 0; i <= factors.size(); ++i) {
    const int64_t extent = i == 0 ? outer : factors[i - 1];
    Loop part{.var = MakeVar(absl::StrCat(loop, ".", i), extent), .reduce = old.reduce};
    value = value == nullptr ? VarExpr(part.var) : value * Int(extent) + VarExpr(part.var);
    parts.push_back(std::move(part));
  }
  ReplaceVar(*here, old.var, value);
  if (outer * product != old.var->extent) {
    here->guards.push_back(Simplify(value < Int(old.var->extent)));
  }
  const auto place = here->loops.erase(here->loops.begin() + static_cast<std::ptrdiff_t>(at));
  here->loops.insert(place, parts.begin(), parts.end());
  here->untouched = false;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
