#include "search_space/lower/copies/fetch.h"

#include <utility>

#include "search_space/ir/background.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/masked.h"
#include "search_space/lower/context/values.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMaxUnrolledFetch = 32;

// Tensors that follow one another; of more an element is computed.
constexpr size_t kMostCases = 4;

void AddCases(const Expr& value, const Expr& condition, std::vector<Case>& cases) {
  if (cases.size() > kMostCases) return;
  if (value->op != Op::kSelect || IsGuarded(value)) {
    cases.push_back({condition, value});
    return;
  }
  const Expr& holds = value->args[0];
  AddCases(value->args[1], AndAlso(condition, holds), cases);
  AddCases(value->args[2], AndAlso(condition, Simplify(MakeExpr(Op::kNot, {holds}))), cases);
}

}  // namespace

std::vector<Case> CasesOf(const Expr& value) {
  std::vector<Case> cases;
  AddCases(value, nullptr, cases);
  if (cases.size() > kMostCases) return {{nullptr, value}};
  return cases;
}

Expr ValueAt(const ScheduledStage& stage, const FetchGrid& grid) {
  return Substitute(stage.body, [&](const Var& var) -> Expr {
    for (size_t i = 0; i < stage.axes.size(); ++i) {
      if (stage.axes[i] == var) return Simplify(stage.base[i] + grid.position[i]);
    }
    return nullptr;
  });
}

Stmt FetchNest(const FetchGrid& grid, Stmt move, const Share& share) {
  const Var& e = grid.trip;
  if (grid.guard != nullptr) move = If(grid.guard, move);
  if (grid.lane->extent > 1) move = For(grid.lane, ForKind::kVector, move);
  Var trip = e;
  if (share.of > 1) {
    trip = MakeVar(e->name, (e->extent + share.of - 1) / share.of);
    const Expr at = Simplify(share.number * Int(trip->extent) + VarExpr(trip));
    move = ReplaceVar(move, e, at);
    if (e->extent % share.of != 0) move = If(Simplify(at < Int(e->extent)), move);
  }
  if (trip->extent > 1) {
    move =
        For(trip, trip->extent <= kMaxUnrolledFetch ? ForKind::kUnrolled : ForKind::kSerial, move);
  }
  const Expr condition = AndAlso(grid.useful, grid.thread_guard);
  return condition != nullptr ? If(condition, move) : move;
}

FetchGrid GridOf(const KernelContext& context, int s) {
  FetchGrid grid = MakeFetchGrid(context.stage(s), context.thread);
  grid.useful = IsFetchUseful(context, s);
  return grid;
}

Stmt EmitFetch(KernelContext& context, int s, const Assumptions& outer) {
  const FetchGrid grid = GridOf(context, s);
  const Expr value = Resolve(context, ValueAt(context.stage(s), grid), grid.Assume(outer));
  return FetchNest(
      grid,
      Store(context.storage.at(s).buffer, context.IndicesOf(s, grid.position, nullptr), value), {});
}

}  // namespace heddle::search_space
