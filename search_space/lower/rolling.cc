#include "search_space/lower/rolling.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/simplify.h"
#include "search_space/lower/masked.h"
#include "search_space/lower/values.h"
#include "search_space/schedule/rolling.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kRowLanes = 4;  // that hold elements of one row (FragmentLayout)

// All elements of a buffer, in unrolled loops around `body`.
struct Elements {
  std::vector<Var> vars;
  ExprList at;

  explicit Elements(const Buffer& buffer) {
    for (int64_t extent : buffer.shape) {
      vars.push_back(MakeVar(absl::StrCat(buffer.name, ".", vars.size()), extent));
      at.push_back(extent == 1 ? Int(0) : VarExpr(vars.back()));
    }
  }
  Stmt Around(Stmt body) const {
    for (size_t i = vars.size(); i-- > 0;) {
      if (vars[i]->extent > 1) body = For(vars[i], ForKind::kUnrolled, std::move(body));
    }
    return body;
  }
};

size_t AxisOf(const ScheduledStage& stage, const Var& axis) {
  return static_cast<size_t>(stage.FindAxis(axis));
}

// Is a value combined with itself that value? Then lanes may combine theirs any number of times.
bool IsIdempotent(Combiner combiner) {
  return combiner == Combiner::kMax || combiner == Combiner::kMin;
}

Stmt CombineLanes(const ScheduledStage& stage, const BufferRef& buffer) {
  const Elements all(*buffer);
  return all.Around(WarpReduce(stage.combiner, buffer, all.at, kRowLanes));
}

// The terms of one iteration, of which a lane takes those whose columns it holds.
Stmt TakeTerms(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const auto& rows = *here.Note<RowFragment>();
  const FragmentLayout& layout = rows.layout();
  const BufferRef& buffer = context.storage.at(s).buffer;
  const Elements own(*buffer);
  const Expr lane = VarExpr(context.thread) % Int(layout.lanes());
  const Loop& reduce = here.loops.back();
  const Var block = MakeVar(reduce.var->name, reduce.var->extent / layout.block_cols());
  const Var packed = MakeVar("column", layout.packed);
  const auto value_of = [](const Var& v) { return v->extent == 1 ? Int(0) : VarExpr(v); };
  const Expr term = value_of(block) * Int(layout.block_cols()) +
                    lane % Int(kRowLanes) * Int(layout.packed) + value_of(packed);
  const Expr r = Simplify(Substitute(
      here.values.back(), [&](const Var& v) { return v == reduce.var ? term : nullptr; }));
  const Expr body = Substitute(here.body, [&](const Var& v) -> Expr {
    if (v == here.reduce_axes[0]) return r;
    const int axis = here.FindAxis(v);
    if (axis < 0) return nullptr;
    const auto i = static_cast<size_t>(axis);
    Expr inside = own.at[i];
    if (v->name == rows.row) {
      inside = inside * Int(layout.rows) + layout.Row(lane, own.at.back() * Int(layout.packed));
    }
    return Simplify(here.base[i] + inside);
  });
  Stmt take =
      Store(buffer, own.at,
            Combine(here.combiner, Load(buffer, own.at), Resolve(context, body, assumptions)));
  // One after another, so that it is known which of a register each is.
  std::vector<Stmt> takes;
  for (int64_t i = 0; i < packed->extent; ++i) takes.push_back(ReplaceVar(take, packed, Int(i)));
  take = Seq(std::move(takes));
  if (block->extent > 1) take = For(block, ForKind::kUnrolled, std::move(take));
  return own.Around(std::move(take));
}

// Multiplies the elements of `d` by the factors of their rows, which lie as `running` does.
Stmt Scale(const KernelContext& context, int d, const ScheduledStage& running,
           const BufferRef& factors) {
  const ScheduledStage& sum = context.stage(d);
  const BufferRef& buffer = context.storage.at(d).buffer;
  const Elements all(*buffer);
  ExprList factor(factors->shape.size(), Int(0));
  factor[AxisOf(running, RowOf(running))] = all.at[AxisOf(sum, RowOf(sum))];
  factor.back() = all.at.back();
  if (const auto* fragment = sum.Note<Fragment>()) {
    // A lane's elements are those of one block after another, downwards first.
    const FragmentLayout& layout = fragment->layout();
    factor.back() = Simplify(all.at.back() / Int(layout.packed) % Int(layout.row_blocks()));
  }
  return all.Around(Store(buffer, all.at, Load(buffer, all.at) * Load(factors, factor)));
}

// The sums to make good for when `running` changes, by how they depend on it.
std::map<double, std::vector<int>> DependentsOf(const KernelContext& context,
                                                const ScheduledStage& running) {
  std::map<double, std::vector<int>> dependents;
  std::vector<int> sums = RolledWith(context.schedule, running.consumer);
  sums.push_back(running.consumer);
  for (int d : sums) {
    const ScheduledStage& sum = context.stage(d);
    if (&sum == &running) continue;
    const auto slope = SlopeOf(context.schedule, sum, running);
    if (slope && *slope != 0) dependents[*slope].push_back(d);
  }
  return dependents;
}

}  // namespace

ExprList HeldInRows(KernelContext& context, const ScheduledStage& stage, ExprList index) {
  for (Expr& i : index) i = OnThread(context, i);
  const auto& rows = *stage.Note<RowFragment>();
  const Expr& row = index[AxisOf(stage, RowOf(stage))];
  const Expr lane = VarExpr(context.thread) % Int(rows.layout().lanes());
  // The first lane of those that have the row.
  const Expr first = rows.layout().Lane(row, Int(0));
  if (!IsInt(Simplify(first / Int(kRowLanes) - lane / Int(kRowLanes)), 0)) {
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

Stmt ApartFromMasked(KernelContext& context, int s, const Assumptions& assumptions,
                     absl::FunctionRef<Stmt(const Assumptions&)> emit) {
  const int consumer = context.stage(s).consumer;
  const ScheduledStage& sum = context.stage(consumer);
  const auto depth = static_cast<size_t>(sum.FindLoop(context.stage(s).attach_loop));
  const Expr all = sum.useful.empty() ? nullptr : IsAllUseful(context, consumer, depth + 1);
  if (all == nullptr || IsInt(all, 0)) return emit(assumptions);
  Assumptions assumed = assumptions;
  assumed.push_back(all);
  const Stmt of_whole = emit(assumed), of_any = emit(assumptions);
  if (ToString(of_whole) == ToString(of_any)) return of_any;  // what asks for no term
  return Seq({If(all, of_whole), If(Simplify(MakeExpr(Op::kNot, {all})), of_any)});
}

Stmt EmitRowReduction(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  // Loops are those of lanes, which share out one over all terms.
  const auto is_made = [](const Loop& l) { return l.kind != LoopKind::kSerial; };
  if (here.loops.size() != here.axes.size() + 1 ||
      std::any_of(here.loops.begin(), here.loops.end(), is_made)) {
    return context.Fail(absl::StrCat("the loops of row_fragment ", here.name(),
                                     " are changed: lanes take the terms that they hold"));
  }
  const BufferRef& buffer = context.storage.at(s).buffer;
  const Elements all(*buffer);
  return Seq({all.Around(Store(buffer, all.at, IdentityOf(here.combiner, buffer->dtype))),
              TakeTerms(context, s, assumptions), CombineLanes(here, buffer)});
}

// What is read in the loop is a number: where all terms so far are infinite, as those are that an
// added mask leaves out, they are still exp(-infinity), which is 0, relative to it. It is less than
// any other number, so that the first of these takes its place, as it would that of infinity.
Stmt BeginRollingUpdate(KernelContext& context, int s) {
  const Combiner combiner = context.stage(s).combiner;
  const BufferRef& buffer = context.storage.at(s).buffer;
  const double lowest = std::numeric_limits<float>::lowest();
  const Expr nothing = IsIdempotent(combiner)
                           ? Float(combiner == Combiner::kMax ? lowest : -lowest, buffer->dtype)
                           : IdentityOf(combiner, buffer->dtype);
  const Elements all(*buffer);
  return all.Around(Store(buffer, all.at, nothing));
}

Stmt EmitRollingUpdate(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const BufferRef& buffer = context.storage.at(s).buffer;
  const Stmt take = ApartFromMasked(context, s, assumptions, [&](const Assumptions& assumed) {
    return TakeTerms(context, s, assumed);
  });
  if (!IsIdempotent(here.combiner)) return take;
  const Elements own(*buffer);
  const auto like = [&](const char* name) {
    return MakeBuffer(absl::StrCat(here.name(), name), buffer->dtype, Scope::kLocal, buffer->shape);
  };
  const BufferRef before = like(".before");
  std::vector<Stmt> out = {
      own.Around(Store(before, own.at, Load(buffer, own.at))),
      take,
      CombineLanes(here, buffer),
  };
  for (const auto& [slope, sums] : DependentsOf(context, here)) {
    const BufferRef factors = like(".factor");
    const Expr changed = Load(buffer, own.at) - Load(before, own.at);
    const Expr factor = MakeExpr(Op::kExp, {changed * Float(slope, buffer->dtype)});
    std::vector<Stmt> scale = {own.Around(Store(factors, own.at, factor))};
    for (int d : sums) scale.push_back(Scale(context, d, here, factors));
    out.push_back(Alloc(factors, Seq(std::move(scale))));
  }
  return Alloc(before, Seq(std::move(out)));
}

Stmt EndRollingUpdate(KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  if (IsIdempotent(here.combiner)) return Seq({});
  return CombineLanes(here, context.storage.at(s).buffer);
}

}  // namespace heddle::search_space
