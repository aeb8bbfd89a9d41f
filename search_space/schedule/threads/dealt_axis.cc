#include "search_space/schedule/threads/dealt_axis.h"

#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/threads/share_scan.h"
#include "search_space/schedule/threads/spread.h"

namespace heddle::search_space {

Expr DealtAxis::PlaceOf(const Var& thread) const {
  const Expr t = VarExpr(thread);
  return Simplify(sliced ? t / Int(thread->extent / threads) : t % Int(threads));
}

std::optional<DealtAxis> DealtAxisOf(const ScheduledStage& stage) {
  if (const auto* spread = stage.Note<Spread>()) {
    const auto axis = stage.AxisOf(spread->axis);
    return DealtAxis{axis, spread->threads, spread->vector, axis + 1 < stage.axes.size()};
  }
  if (const auto* share = stage.Note<ShareScan>()) {
    return DealtAxis{ScanOf(stage)->axis, share->threads, share->vector,
                     share->group == ScanGroup::kSlices};
  }
  return std::nullopt;
}

}  // namespace heddle::search_space
