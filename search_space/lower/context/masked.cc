#include "search_space/lower/context/masked.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/values.h"
#include "search_space/schedule/analysis/rolling_reductions.h"
#include "search_space/schedule/matrix/rolling_update.h"
#include "search_space/schedule/matrix/tensorize.h"

namespace heddle::search_space {
namespace {

using LoopSet = absl::flat_hash_set<const Variable*>;

// Loops that a block makes as one.
void Add(const Loop& loop, LoopSet& fixed) {
  const bool by_threads = loop.kind == LoopKind::kThread || loop.kind == LoopKind::kVthread;
  if (!by_threads) fixed.insert(loop.var.get());
}

LoopSet LoopsAround(const KernelContext& context, const ScheduledStage& stage) {
  LoopSet fixed;
  for (const Loop* l : EnclosingLoops(context.schedule, stage)) Add(*l, fixed);
  return fixed;
}

// Does a condition of the sum hold for some iteration of the loops that are not fixed, each of its
// comparisons for one of its own? Or `everywhere`, for all of these, as far as one comparison
// tells?
Expr Holds(const KernelContext& context, const ScheduledStage& sum, const LoopSet& fixed,
           bool everywhere, const Expr& condition) {
  if (condition->op == Op::kOr) {
    const auto holds = [&](const Expr& c) { return Holds(context, sum, fixed, everywhere, c); };
    return Simplify(MakeExpr(Op::kOr, {holds(condition->args[0]), holds(condition->args[1])}));
  }
  const Expr difference = Simplify(AtLoops(context.schedule, sum, condition->args[0]) -
                                   AtLoops(context.schedule, sum, condition->args[1]));
  const Region region =
      RegionOf(difference, [&](const Var& v) { return !fixed.contains(v.get()); });
  const Expr bound = everywhere ? region.base + Int(region.extent - 1) : region.base;
  return Simplify(bound < Int(0));
}

// The same of all of its conditions.
Expr Hold(const KernelContext& context, const ScheduledStage& sum, const LoopSet& fixed,
          bool everywhere) {
  Expr all;
  for (const Expr& c : sum.useful) {
    const Expr holds = Holds(context, sum, fixed, everywhere, c);
    if (!IsInt(holds, 1)) all = AndAlso(all, holds);
  }
  return all;
}

LoopSet LoopsAround(const KernelContext& context, const ScheduledStage& sum, size_t depth) {
  LoopSet fixed = LoopsAround(context, sum);
  for (size_t l = 0; l < depth; ++l) Add(sum.loops[l], fixed);
  return fixed;
}

// The sum of which a mask leaves out terms, and nothing else is made of what `reader` reads.
std::optional<int> MaskedSumFor(const KernelContext& context, int reader) {
  std::optional<int> sum = reader;
  // Registers between the two hold what the sum reads.
  if (!context.stage(reader).is_reduction() && context.stage(reader).scope == Scope::kLocal) {
    sum = context.schedule.OnlyReaderOf(context.stage(reader).tensor.get());
  }
  // What is computed in the loops of another sum is of use where that is.
  while (sum && context.stage(*sum).useful.empty() && context.stage(*sum).consumer >= 0) {
    const int outer = context.stage(*sum).consumer;
    const std::vector<Loop>& loops = context.stage(outer).loops;
    const int at = context.stage(outer).FindLoop(context.stage(*sum).attach_loop);
    if (at < 0 || !MakesTermsIn(context, outer, loops[static_cast<size_t>(at)])) break;
    sum = outer;
  }
  if (!sum || context.stage(*sum).useful.empty()) return std::nullopt;
  return sum;
}

}  // namespace

// Bounds of quotients are not exact, and may say more of a part of a tile than of all of it. What
// is left out as a whole is not fetched, so nothing of it is of use.
Expr IsUseful(const KernelContext& context, int s, size_t depth) {
  const ScheduledStage& sum = context.stage(s);
  if (sum.useful.empty()) return nullptr;
  Expr all = Hold(context, sum, LoopsAround(context, sum, depth), false);
  if (std::none_of(sum.useful.begin(), sum.useful.end(), HasQuotient)) return all;
  Expr last = all;
  for (size_t outer = depth; outer-- > 0;) {
    const Expr whole = Hold(context, sum, LoopsAround(context, sum, outer), false);
    if (whole == nullptr || (last != nullptr && StructurallyEqual(whole, last))) continue;
    all = AndAlso(whole, all);
    last = whole;
  }
  return all;
}

Expr IsAllUseful(const KernelContext& context, int s, size_t depth) {
  const ScheduledStage& sum = context.stage(s);
  return Hold(context, sum, LoopsAround(context, sum, depth), true);
}

bool MakesTermsIn(const KernelContext& context, int s, const Loop& loop) {
  if (!loop.reduce) return false;
  if (!RolledWith(context.schedule, s).empty()) return true;
  const std::vector<int> attached = context.AttachedAt(s, loop.var);
  const auto multiplies = [&](int a) { return context.stage(a).Note<Tensorize>() != nullptr; };
  // A tile that threads fill with what they have computed is no copy that could stand before it.
  const auto is_computed = [&](int a) {
    const std::vector<int> readers = context.schedule.ReadersOf(context.stage(a).tensor.get());
    return std::any_of(readers.begin(), readers.end(), [&](int r) {
      return context.stage(r).scope == Scope::kShared &&
             std::find(attached.begin(), attached.end(), r) != attached.end();
    });
  };
  return std::any_of(attached.begin(), attached.end(), multiplies) &&
         std::none_of(attached.begin(), attached.end(), is_computed);
}

Expr IsFetchUseful(const KernelContext& context, int s) {
  std::optional<int> sum;
  for (int reader : context.schedule.ReadersOf(context.stage(s).tensor.get())) {
    const std::optional<int> masked = MaskedSumFor(context, reader);
    if (!masked || (sum && sum != masked)) return nullptr;
    sum = masked;
  }
  if (!sum) return nullptr;
  // What stays for all iterations is read outside of these, too, whether one is of use or none.
  const std::vector<Loop>& loops = context.stage(*sum).loops;
  const std::vector<const Loop*> around = EnclosingLoops(context.schedule, context.stage(s));
  const bool is_of_iteration = std::any_of(loops.begin(), loops.end(), [&](const Loop& l) {
    return l.reduce && std::any_of(around.begin(), around.end(),
                                   [&](const Loop* a) { return a->var == l.var; });
  });
  if (!is_of_iteration) return nullptr;
  return Hold(context, context.stage(*sum), LoopsAround(context, context.stage(s)), false);
}

}  // namespace heddle::search_space
