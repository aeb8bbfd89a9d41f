#include "search_space/lower/context/held.h"

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/row_fragment.h"

namespace heddle::search_space {

Expr PartOf(const Loop& loop, const Var& thread) {
  const int64_t parts = loop.var->extent;
  const Expr t = VarExpr(thread);
  return Simplify(loop.sliced ? t / Int(thread->extent / parts) : t % Int(parts));
}

Expr OnThread(const KernelContext& context, const Expr& e) {
  return Simplify(Substitute(e, [&](const Var& v) -> Expr {
    for (const ScheduledStage& s : context.schedule.stages()) {
      const int l = s.consumer < 0 ? -1 : s.FindLoop(v);
      if (l < 0 || s.loops[static_cast<size_t>(l)].kind != LoopKind::kThread) continue;
      return PartOf(s.loops[static_cast<size_t>(l)], context.thread);
    }
    return nullptr;
  }));
}

Expr HeldAt(KernelContext& context, const ScheduledStage& stage, const DealtAxis& dealt,
            const Expr& index) {
  const Expr holder = OnThread(context, index / Int(dealt.vector) % Int(dealt.threads));
  if (!IsInt(Simplify(holder - dealt.PlaceOf(context.thread)), 0)) {
    context.Fail(absl::StrCat(stage.name(), " is spread over threads, and element ",
                              ToString(index),
                              " is read by another thread than the one that holds it"));
  }
  const int64_t round = dealt.threads * dealt.vector;
  return Simplify(index / Int(round) * Int(dealt.vector) + index % Int(dealt.vector));
}

ExprList HeldInFragment(KernelContext& context, const ScheduledStage& stage, ExprList index) {
  for (Expr& i : index) i = OnThread(context, i);
  const Fragment& fragment = *stage.Note<Fragment>();
  const FragmentLayout& layout = fragment.layout();
  const Expr& row = index[stage.AxisOf(fragment.row)];
  const Expr& col = index[stage.AxisOf(fragment.col)];
  const Expr lane = VarExpr(context.thread) % Int(layout.lanes());
  if (!IsInt(Simplify(layout.Lane(row, col) - lane), 0)) {
    context.Fail(absl::StrCat("element ", ToString(row), ", ", ToString(col), " of fragment ",
                              stage.name(), " is read by another lane than the one that holds it"));
  }
  ExprList held;
  for (size_t i = 0; i < index.size(); ++i) {
    held.push_back(Simplify(index[i] / Int(fragment.Extent(stage.axes[i]->name))));
  }
  held.push_back(Simplify(layout.Element(row, col)));
  return held;
}

ExprList HeldInRows(KernelContext& context, const ScheduledStage& stage, ExprList index) {
  for (Expr& i : index) i = OnThread(context, i);
  const auto& rows = *stage.Note<RowFragment>();
  const Expr& row = index[stage.AxisOf(RowOf(stage))];
  const Expr lane = VarExpr(context.thread) % Int(rows.layout().lanes());
  // The first lane of those that have the row.
  const Expr first = rows.layout().Lane(row, Int(0));
  const Expr of_row = Int(FragmentLayout::kRowLanes);
  if (!IsInt(Simplify(first / of_row - lane / of_row), 0)) {
    context.Fail(absl::StrCat("row ", ToString(row), " of ", stage.name(),
                              " is read by a lane that holds nothing of it"));
  }
  ExprList held;
  for (size_t i = 0; i < index.size(); ++i) {
    held.push_back(Simplify(index[i] / Int(rows.Extent(stage.axes[i]->name))));
  }
  held.push_back(Simplify(row % Int(rows.layout().warp_rows()) / Int(FragmentLayout::kBlockRows)));
  return held;
}

}  // namespace heddle::search_space
