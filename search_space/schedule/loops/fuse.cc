#include "search_space/schedule/loops/fuse.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Fuse::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (loops.size() < 2) return Refuse("fuse needs at least two loops");
  HEDDLE_ASSIGN_OR_RETURN(first, FindLoop(*here, loops[0]));
  int64_t extent = 1;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (first + i >= here->loops.size() || here->loops[first + i].var->name != loops[i]) {
      return Refuse(absl::StrCat("fuse wants adjacent loops, outermost first; the loops of ", stage,
                                 " are ", LoopNames(*here)));
    }
    const Loop& l = here->loops[first + i];
    HEDDLE_RETURN_IF_ERROR(CheckNothingAttachedAt(editor.schedule(), *here, first + i));
    if (l.kind != LoopKind::kSerial || l.reduce != here->loops[first].reduce) {
      return Refuse(
          absl::StrCat("loop ", loops[i], " is bound already, or mixes data with reduction"));
    }
    if (__builtin_mul_overflow(extent, l.var->extent, &extent)) return Refuse("extent overflows");
  }
  Loop fused{.var = MakeVar(absl::StrJoin(loops, "@"), extent),
             .reduce = here->loops[first].reduce,
             .inner_extent = extent / here->loops[first].var->extent};
  absl::InlinedVector<std::pair<Var, Expr>, 8> parts;
  int64_t inner = extent;
  for (size_t i = 0; i < loops.size(); ++i) {
    const Var& part = here->loops[first + i].var;
    inner /= part->extent;
    parts.emplace_back(part, Simplify((VarExpr(fused.var) / Int(inner)) % Int(part->extent)));
  }
  const auto replace = [&](const Var& v) -> Expr {
    for (const auto& [part, value] : parts) {
      if (part == v) return value;
    }
    return nullptr;
  };
  for (Expr& e : here->values) e = Simplify(Substitute(e, replace));
  for (Expr& e : here->guards) e = Simplify(Substitute(e, replace));
  const auto begin = here->loops.begin() + static_cast<std::ptrdiff_t>(first);
  here->loops.erase(begin + 1, begin + static_cast<std::ptrdiff_t>(loops.size()));
  here->loops[first] = std::move(fused);
  here->untouched = false;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
