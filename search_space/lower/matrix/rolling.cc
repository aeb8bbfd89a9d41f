#include "search_space/lower/matrix/rolling.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/masked.h"
#include "search_space/lower/context/values.h"
#include "search_space/schedule/analysis/rolling_reductions.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/rolling_update.h"
#include "search_space/schedule/matrix/row_fragment.h"

namespace heddle::search_space {
namespace {

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

// Calls `visit` with the index of each element, all of them numbers.
void ForEachElement(const Buffer& buffer, absl::FunctionRef<void(const ExprList&)> visit) {
  for (int64_t e = 0; e < buffer.elements; ++e) {
    ExprList at(buffer.shape.size());
    int64_t rest = e;
    for (size_t d = at.size(); d-- > 0; rest /= buffer.shape[d])
      at[d] = Int(rest % buffer.shape[d]);
    visit(at);
  }
}

Stmt CombineLanes(const ScheduledStage& stage, const BufferRef& buffer) {
  const Elements all(*buffer);
  return all.Around(WarpReduce(stage.combiner, buffer, all.at, FragmentLayout::kRowLanes));
}

// Combines `buffer` with the terms of one iteration, of which a lane takes those whose columns it
// holds.
Stmt TakeTerms(KernelContext& context, int s, const BufferRef& buffer,
               const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const auto& rows = *here.Note<RowFragment>();
  const FragmentLayout& layout = rows.layout();
  const Elements own(*buffer);
  const Expr lane = VarExpr(context.thread) % Int(layout.lanes());
  const Loop& reduce = here.loops.back();
  const Var block = MakeVar(reduce.var->name, reduce.var->extent / layout.block_cols());
  const Var packed = MakeVar("column", layout.packed);
  const auto value_of = [](const Var& v) { return v->extent == 1 ? Int(0) : VarExpr(v); };
  const Expr term = value_of(block) * Int(layout.block_cols()) +
                    lane % Int(FragmentLayout::kRowLanes) * Int(layout.packed) + value_of(packed);
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
  factor[running.AxisOf(RowOf(running))] = all.at[sum.AxisOf(RowOf(sum))];
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

// Do sums depend on the stage, a maximum or a minimum, so that they are made good for its changes?
bool IsDependedOn(const KernelContext& context, int s) {
  return IsIdempotent(context.stage(s).combiner) &&
         !DependentsOf(context, context.stage(s)).empty();
}

// The latest value of a lane's row as sums may be relative to it: where all terms so far are
// infinite, as those are that a mask leaves out, still the number with which it began.
Expr LatestAt(const KernelContext& context, int s, const ExprList& at) {
  const BufferRef& latest = context.storage.at(s).latest;
  return Bounded(context.stage(s).combiner, Load(latest, at));
}

// The exponent of what sums that depend on the value so are multiplied by when it becomes that.
Expr ExponentAt(const KernelContext& context, int s, const ExprList& at, double slope) {
  const BufferRef& value = context.storage.at(s).buffer;
  return (LatestAt(context, s, at) - Load(value, at)) * Float(slope, value->dtype);
}

// Has the sums be what they would if the value had been the latest one.
Stmt CatchUp(const KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  const BufferRef& value = context.storage.at(s).buffer;
  const Elements own(*value);
  std::vector<Stmt> out;
  for (const auto& [slope, sums] : DependentsOf(context, here)) {
    const BufferRef factors =
        MakeBuffer(absl::StrCat(here.name(), ".factor"), value->dtype, Scope::kLocal, value->shape);
    const Expr factor = MakeExpr(Op::kExp, {ExponentAt(context, s, own.at, slope)});
    std::vector<Stmt> scale = {own.Around(Store(factors, own.at, factor))};
    for (int d : sums) scale.push_back(Scale(context, d, here, factors));
    out.push_back(Alloc(factors, Seq(std::move(scale))));
  }
  return Seq(std::move(out));
}

// The most that a term may be relative to a value that is behind, as an exponent: e^5.5 is some
// 245. What is kept in float16 between might exceed what that holds, 65504, if it does not for the
// latest value.
double MostExponent(const KernelContext& context, int s) {
  static constexpr double kMostExponent = 5.5;
  const int consumer = context.stage(s).consumer;
  const auto& stages = context.schedule.stages();
  const bool has_float16 = std::any_of(stages.begin(), stages.end(), [&](const ScheduledStage& r) {
    return r.consumer == consumer && r.tensor->dtype == DType::kFloat16;
  });
  return has_float16 ? 0 : kMostExponent;
}

// Is the value so far behind the latest, in any row of the lane? If that is no number, too.
Expr IsFarBehind(const KernelContext& context, int s) {
  const BufferRef& value = context.storage.at(s).buffer;
  const auto dependents = DependentsOf(context, context.stage(s));
  const double steepest = context.stage(s).combiner == Combiner::kMax ? dependents.begin()->first
                                                                      : dependents.rbegin()->first;
  const Expr bound = Float(-MostExponent(context, s), value->dtype);
  Expr any;
  ForEachElement(*value, [&](const ExprList& at) {
    const Expr far = MakeExpr(Op::kNot, {bound <= ExponentAt(context, s, at, steepest)});
    any = any == nullptr ? far : MakeExpr(Op::kOr, {any, far});
  });
  return any;
}

}  // namespace

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
              TakeTerms(context, s, buffer, assumptions), CombineLanes(here, buffer)});
}

BufferRef AllocateLatest(KernelContext& context, int s) {
  if (!IsDependedOn(context, s)) return nullptr;
  KernelContext::Storage& storage = context.storage.at(s);
  const Buffer& value = *storage.buffer;
  storage.latest = MakeBuffer(absl::StrCat(context.stage(s).name(), ".latest"), value.dtype,
                              Scope::kLocal, value.shape);
  return storage.latest;
}

// What sums are relative to is a number: where all terms so far are infinite, as those are that an
// added mask leaves out, they are still exp(-infinity), which is 0, relative to it. It is less than
// any other number, so that the first of these takes its place, as it would that of infinity.
Stmt BeginRollingUpdate(KernelContext& context, int s) {
  const Combiner combiner = context.stage(s).combiner;
  const KernelContext::Storage& storage = context.storage.at(s);
  const DType type = storage.buffer->dtype;
  const Expr identity = IdentityOf(combiner, type);
  const Elements all(*storage.buffer);
  if (storage.latest == nullptr) return all.Around(Store(storage.buffer, all.at, identity));
  return Seq({all.Around(Store(storage.buffer, all.at, LeastNumber(combiner, type))),
              all.Around(Store(storage.latest, all.at, identity))});
}

Stmt EmitRollingUpdate(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const KernelContext::Storage& storage = context.storage.at(s);
  const BufferRef into = storage.latest != nullptr ? storage.latest : storage.buffer;
  const Stmt take = ApartFromMasked(context, s, assumptions, [&](const Assumptions& assumed) {
    return TakeTerms(context, s, into, assumed);
  });
  if (!IsIdempotent(here.combiner)) return take;
  std::vector<Stmt> out = {take, CombineLanes(here, into)};
  if (storage.latest != nullptr) {
    const Elements own(*storage.buffer);
    const Stmt follow = own.Around(Store(storage.buffer, own.at, LatestAt(context, s, own.at)));
    out.push_back(If(IsFarBehind(context, s), Seq({CatchUp(context, s), follow})));
  }
  return Seq(std::move(out));
}

Stmt EndRollingUpdate(KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  const KernelContext::Storage& storage = context.storage.at(s);
  if (storage.latest != nullptr) {
    const Elements own(*storage.buffer);
    return Seq({CatchUp(context, s),
                own.Around(Store(storage.buffer, own.at, Load(storage.latest, own.at)))});
  }
  return IsIdempotent(here.combiner) ? Seq({}) : CombineLanes(here, storage.buffer);
}

}  // namespace heddle::search_space
