#include "search_space/schedule/threads/block_swizzle.h"

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status BlockSwizzle::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (HasAttached(editor.schedule(), *here)) {
    return Refuse(absl::StrCat("swizzle the blocks of ", stage,
                               " before other stages are computed in its loops"));
  }
  for (const Loop& l : here->loops) {
    if (l.kind != LoopKind::kBlock) continue;
    const int64_t columns = l.inner_extent, grid_rows = l.var->extent / columns;
    if (rows < 1 || grid_rows % rows != 0) {
      return Refuse(
          absl::StrCat("the grid has ", grid_rows, " rows of blocks, not a multiple of ", rows));
    }
    // Block b walks down `rows` rows before it moves to the next column.
    const Expr b = VarExpr(l.var);
    const Expr row = b / Int(rows * columns) * Int(rows) + b % Int(rows);
    const Expr column = b % Int(rows * columns) / Int(rows);
    ReplaceVar(*here, l.var, Simplify(row * Int(columns) + column));
    return absl::OkStatus();
  }
  return Refuse(absl::StrCat("no loop of ", stage, " is bound to the block axis"));
}

}  // namespace heddle::search_space
