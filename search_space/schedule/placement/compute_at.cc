#include "search_space/schedule/placement/compute_at.h"

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/bounds.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/row_fragment.h"
#include "search_space/schedule/threads/dealt_axis.h"

namespace heddle::search_space {
namespace {

// The loop of an axis that threads hold together: rounds, the threads of a group, a run of each.
void DealLoop(ScheduledStage& stage, const DealtAxis& dealt) {
  const int64_t threads = dealt.threads, vector = dealt.vector;
  const auto at = stage.loops.begin() + static_cast<std::ptrdiff_t>(dealt.axis);
  const Var whole = at->var;
  int64_t& extent = stage.extent[dealt.axis];
  const int64_t rounds = (extent - 1) / (threads * vector) + 1;
  extent = rounds * threads * vector;
  const auto part = [&](int i, int64_t length, LoopKind kind) {
    return Loop{.var = MakeVar(absl::StrCat(whole->name, ".", i), length), .kind = kind};
  };
  // Vectors are of what is innermost.
  const bool wide = vector > 1 && at + 1 == stage.loops.end();
  std::vector<Loop> parts = {part(0, rounds, LoopKind::kSerial),
                             part(1, threads, LoopKind::kThread),
                             part(2, vector, wide ? LoopKind::kVector : LoopKind::kSerial)};
  parts[1].sliced = dealt.sliced;
  stage.values[dealt.axis] = VarExpr(parts[0].var) * Int(threads * vector) +
                             VarExpr(parts[1].var) * Int(vector) + VarExpr(parts[2].var);
  stage.loops.insert(stage.loops.erase(at), parts.begin(), parts.end());
  stage.untouched = false;
}

}  // namespace

absl::Status ComputeAt::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(around, editor.FindStage(consumer));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*around, loop));
  if (here->consumer >= 0) return Refuse(absl::StrCat(stage, " is attached already"));
  if (here->is_output) return Refuse(absl::StrCat(stage, " is an output: it is a kernel"));
  if (here->scope == Scope::kGlobal) {
    return Refuse(absl::StrCat("set the scope of ", stage,
                               " to shared or local first: only caches are computed inside loops"));
  }
  if (!here->untouched || HasAttached(schedule, *here)) {
    return Refuse(absl::StrCat("compute_at must come before other changes to the loops of ", stage,
                               ", because it changes their extents"));
  }
  const int index = schedule.IndexOf(*around);
  if (schedule.IndexOf(*here) >= index) {
    return Refuse(absl::StrCat(consumer, " does not read ", stage));
  }
  std::vector<Expr> base;
  std::vector<int64_t> extent;
  const Var& var = around->loops[at].var;
  HEDDLE_RETURN_IF_ERROR(InferRegion(schedule, *here, index, var, base, extent));
  if (const auto* fragment = here->Note<Fragment>(); fragment != nullptr) {
    for (size_t i = 0; i < here->axes.size(); ++i) {
      const int64_t of_matrix = fragment->Extent(here->axes[i]->name);
      if (extent[i] % of_matrix == 0 && ModulusRemainder(base[i]).modulus % of_matrix == 0 &&
          ModulusRemainder(base[i]).remainder % of_matrix == 0) {
        continue;
      }
      return Refuse(absl::StrCat("a warp would hold ", extent[i], " elements of axis ",
                                 here->axes[i]->name, " of ", stage, " from ", ToString(base[i]),
                                 " on, which are no whole matrices of ", of_matrix));
    }
  }
  if (const auto* rows = here->Note<RowFragment>(); rows != nullptr) {
    HEDDLE_RETURN_IF_ERROR(rows->CheckRegion(*here, base, extent));
    const int64_t columns = rows->layout().block_cols();
    if (here->reduce_axes.size() != 1 || here->reduce_axes[0]->extent % columns != 0) {
      return Refuse(absl::StrCat(stage, " reduces no multiple of ", columns,
                                 " terms along one axis, as lanes hold them"));
    }
  }
  for (ScheduledStage& s : editor.stages()) {
    if (s.leader != here->tensor) continue;
    s.scope = here->scope;
    for (size_t i = 0; i < s.axes.size(); ++i) {
      const auto axis = here->AxisOf(s.axes[i]);
      s.base[i] = base[axis];
      s.extent[i] = extent[axis];
    }
  }
  here->base = std::move(base);
  here->extent = std::move(extent);
  here->consumer = index;
  here->attach_loop = var;
  ResetLoops(*here);
  if (const auto dealt = DealtAxisOf(*here)) DealLoop(*here, *dealt);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
