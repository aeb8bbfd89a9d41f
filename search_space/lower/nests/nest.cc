#include "search_space/lower/nests/nest.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/carried.h"
#include "search_space/lower/context/held.h"
#include "search_space/lower/context/masked.h"
#include "search_space/lower/context/values.h"
#include "search_space/lower/copies/fetch.h"
#include "search_space/lower/copies/pipeline.h"
#include "search_space/lower/matrix/fragments.h"
#include "search_space/lower/matrix/rolling.h"
#include "search_space/lower/nests/beside.h"
#include "search_space/lower/nests/collectives.h"
#include "search_space/lower/nests/scatter.h"
#include "search_space/lower/nests/shared_scan.h"
#include "search_space/schedule/copies/fetch.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/rolling_update.h"
#include "search_space/schedule/matrix/row_fragment.h"
#include "search_space/schedule/matrix/tensorize.h"
#include "search_space/schedule/placement/reduce_beside.h"
#include "search_space/schedule/threads/dealt_axis.h"
#include "search_space/schedule/threads/scatter.h"
#include "search_space/schedule/threads/share_scan.h"

namespace heddle::search_space {
namespace {

// How deep in the stage's nest a loop variable is bound; -1 when outside.
int DepthOf(const ScheduledStage& stage, const Expr& e) {
  int depth = -1;
  Visit(e, [&](const Expr& node) {
    if (node->op == Op::kVar) depth = std::max(depth, stage.FindLoop(node->var));
  });
  return depth;
}

// Is this the loop that the copies of a pipeline are interleaved with? (Registers that run ahead
// have a loop of their own, which starts them.)
bool StartsCopies(const ScheduledStage& stage, const Loop& loop) {
  return loop.interleaved && PrefetchOf(stage) == nullptr;
}

bool HasCollectiveBelow(const KernelContext& context, int s, size_t depth);

// Is a stage that threads compute together computed at the loop of `s`?
bool AttachesCollective(const KernelContext& context, int s, const Loop& loop) {
  const std::vector<int> attached = context.AttachedAt(s, loop.var);
  return std::any_of(attached.begin(), attached.end(), [&](int a) {
    return context.stage(a).scope == Scope::kShared ||
           context.stage(a).shared_reduction() != nullptr ||
           context.stage(a).Note<ShareScan>() != nullptr || HasCollectiveBelow(context, a, 0);
  });
}

// Is such a stage computed, or are its copies started, in the loops of `s` at `depth` or deeper?
bool HasCollectiveBelow(const KernelContext& context, int s, size_t depth) {
  if (CombinesBeside(context, s, depth)) return true;
  const std::vector<Loop>& loops = context.stage(s).loops;
  return std::any_of(
      loops.begin() + static_cast<std::ptrdiff_t>(depth), loops.end(), [&](const Loop& l) {
        return StartsCopies(context.stage(s), l) || AttachesCollective(context, s, l);
      });
}

// The loop of `s` outside of which nothing is computed between its products in background; nullopt
// where it has none.
std::optional<size_t> GroupDepth(const KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  if (!MultipliesInBackground(here)) return std::nullopt;
  std::optional<size_t> group;
  for (size_t l = 0; l < here.loops.size(); ++l) {
    if (here.loops[l].reduce && !group) group = l;
    if (group && !context.AttachedAt(s, here.loops[l].var).empty()) group = l + 1;
  }
  return group;
}

// The indices at which an element of `stage` is stored, in the loops of `nest`.
ExprList IndicesOf(const ScheduledStage& nest, const ScheduledStage& stage) {
  ExprList indices;
  for (const Var& axis : stage.axes) {
    indices.push_back(Simplify(nest.values[nest.AxisOf(axis)]));
  }
  return indices;
}

// Where a stage that has not all axes of its nest is computed; null = everywhere.
Expr Once(const ScheduledStage& nest, const ScheduledStage& stage) {
  Expr condition;
  for (size_t i = 0; i < nest.axes.size(); ++i) {
    if (stage.FindAxis(nest.axes[i]) >= 0 || nest.axes[i]->extent == 1) continue;
    condition = AndAlso(condition, Simplify(nest.values[i] < Int(1)));
  }
  return condition;
}

// Are the loops of `s` from `depth` on made for each of the stages that they compute? So are the
// innermost ones over elements of a reduction, that each has its multiply-adds side by side, and
// vectors, which are of one store.
bool AreSeparate(const KernelContext& context, int s, size_t depth) {
  const ScheduledStage& here = context.stage(s);
  return std::all_of(here.loops.begin() + static_cast<std::ptrdiff_t>(depth), here.loops.end(),
                     [&](const Loop& l) {
                       return l.kind == LoopKind::kVector ||
                              (here.is_reduction() && !l.reduce && l.IsIterated() &&
                               context.AttachedAt(s, l.var).empty());
                     });
}

// Combines what the threads that share the loop have reduced.
Stmt EmitCombine(KernelContext& context, int s, const Loop& shared) {
  const ScheduledStage& here = context.stage(s);  // its own nest's, or one computed with that
  const int64_t threads = context.thread->extent, parts = shared.var->extent;
  if (threads % kWarpThreads != 0 || threads % parts != 0) {
    return context.Fail(absl::StrCat(parts, " threads share the reduction ", here.name(),
                                     ", but the block has ", threads,
                                     ": it must be whole warps and whole groups"));
  }
  const BufferRef& registers = context.storage.at(s).buffer;
  if (!shared.sliced) return CombineNeighbours(here.combiner, registers, context.thread, parts);
  std::vector<Var> vthreads;
  for (const Loop& l : context.stage(context.root).loops) {
    if (l.kind == LoopKind::kVthread && l.var->extent > 1) vthreads.push_back(l.var);
  }
  return CombineSlices(here.combiner, registers, context.thread, parts, shared.for_all, vthreads);
}

// Sets the reduction's elements to the combiner's identity, in loops of its own.
Stmt EmitInit(KernelContext& context, int s, int member, size_t first_reduce,
              const std::vector<Expr>& guards) {
  const ScheduledStage& here = context.stage(s);
  const ScheduledStage& stage = context.stage(member);
  if (stage.Note<Fragment>() != nullptr) return EmitInitFragment(context, member);
  const BufferRef& buffer = context.storage.at(member).buffer;
  Stmt init = Store(buffer, IndicesOf(here, stage), IdentityOf(stage.combiner, buffer->dtype));
  Expr condition;
  for (const Expr& g : guards) {
    if (!here.MentionsReduction(g)) condition = AndAlso(condition, g);
  }
  if (condition != nullptr) init = If(condition, init);
  for (size_t l = here.loops.size(); l-- > first_reduce;) {
    const Loop& loop = here.loops[l];
    if (loop.reduce || loop.var->extent == 1) continue;
    const Var fresh = MakeVar(loop.var->name, loop.var->extent);
    init = For(fresh, ForKind::kSerial, ReplaceVar(init, loop.var, VarExpr(fresh)));
  }
  return init;
}

// One element of `member`, in the loops of `s`.
Stmt EmitCompute(KernelContext& context, int s, int member, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const ScheduledStage& stage = context.stage(member);
  Expr value = Resolve(context, AtLoops(context.schedule, here, stage.body), assumptions);
  if (stage.Note<ReduceBeside>() != nullptr) return ReduceTerm(context, s, member, value);
  ExprList indices = IndicesOf(here, stage);
  BufferRef buffer;
  if (here.is_root()) {
    buffer = context.globals.at(stage.tensor.get());
  } else {
    const KernelContext::Storage& storage = context.storage.at(member);
    buffer = storage.buffer;
    indices = context.IndicesOf(member, indices, storage.slot);
  }
  if (const auto dealt = DealtAxisOf(here)) {
    indices[dealt->axis] = HeldAt(context, here, *dealt, indices[dealt->axis]);
  }
  if (here.is_reduction()) value = Combine(stage.combiner, Load(buffer, indices), value);
  const Expr once = Once(here, stage);
  Stmt store = Store(buffer, std::move(indices), std::move(value));
  return once == nullptr ? store : If(once, store);
}

// Takes out of `carried` the guards whose variables are all bound at `depth`, and assumes them.
Expr TakeGuards(const ScheduledStage& here, size_t depth, Carried& carried) {
  Expr condition;
  std::vector<Expr> later;
  for (const Expr& g : carried.guards) {
    if (DepthOf(here, g) <= static_cast<int>(depth)) {
      condition = AndAlso(condition, g);
      carried.assumptions.push_back(g);
    } else {
      later.push_back(g);
    }
  }
  carried.guards = std::move(later);
  return condition;
}

// `body` for the iterations of a loop that is bound to thread.
Stmt OnThreads(KernelContext& context, int s, const Loop& loop, const Stmt& body) {
  if (s == context.root) return body;  // the kernel's own thread variable
  const ScheduledStage& here = context.stage(s);
  const Var& thread = context.thread;
  if (loop.var->extent > thread->extent) {
    return context.Fail(absl::StrCat("loop ", loop.var->name, " of ", here.name(), " wants ",
                                     loop.var->extent, " threads; the kernel has ",
                                     thread->extent));
  }
  if (here.scope == Scope::kLocal) return ReplaceVar(body, loop.var, PartOf(loop, thread));
  const Stmt mine = ReplaceVar(body, loop.var, VarExpr(thread));
  return loop.var->extent < thread->extent ? If(VarExpr(thread) < Int(loop.var->extent), mine)
                                           : mine;
}

Stmt InLoop(KernelContext& context, int s, const Loop& loop, Stmt body) {
  switch (loop.kind) {
    case LoopKind::kSerial:
    case LoopKind::kUnrolled:
    case LoopKind::kVector: {
      static constexpr ForKind kKinds[] = {ForKind::kSerial, ForKind::kUnrolled, ForKind::kVector};
      if (loop.var->extent == 1) return body;
      return For(loop.var, kKinds[static_cast<int>(loop.kind)], std::move(body));
    }
    case LoopKind::kThread:
      return OnThreads(context, s, loop, body);
    case LoopKind::kBlock:
    case LoopKind::kVthread:
      break;
  }
  return body;
}

// Does every lane copy elements that lie as a product's results do out of the device's memory?
bool IsHeldFromMemory(const KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  const auto* fragment = here.Note<Fragment>();
  const Expr& copied = WithoutCast(here.body);
  if (fragment == nullptr || fragment->operand != MatrixOperand::kD || here.is_reduction() ||
      copied->op != Op::kLoad) {
    return false;
  }
  const int source = context.schedule.FindStage(copied->buffer.get());
  return source < 0 || context.stage(source).scope == Scope::kGlobal;
}

// Stage `a` where it is attached, in a loop of a sum whose terms are made there (`makes_terms`) or
// not; its registers are added to `locals`.
Stmt EmitAttached(KernelContext& context, int a, bool makes_terms, const Carried& carried,
                  std::vector<BufferRef>& locals) {
  const ScheduledStage& here = context.stage(a);
  if (here.Note<RollingUpdate>() != nullptr) {
    return EmitRollingUpdate(context, a, carried.assumptions);
  }
  std::vector<int> members = context.Together(a);
  const std::vector<int> rolled = RolledWith(context.schedule, a);
  // What is taken along with a sum outlives its loops, as the sum does.
  members.insert(members.end(), rolled.begin(), rolled.end());
  for (int member : members) {
    const BufferRef buffer = context.Allocate(member, 1, nullptr);
    if (buffer->scope == Scope::kLocal) locals.push_back(buffer);
  }
  for (int r : rolled) {
    if (const BufferRef latest = AllocateLatest(context, r)) locals.push_back(latest);
  }
  const auto emit = [&](const Assumptions& assumed) { return EmitStage(context, a, assumed); };
  const bool is_computed =
      here.Note<Fragment>() != nullptr && !here.is_reduction() && here.body->op != Op::kLoad;
  return makes_terms && is_computed ? ApartFromMasked(context, a, carried.assumptions, emit)
                                    : emit(carried.assumptions);
}

// What stands inside one loop: attached stages, then the rest of the nest.
Stmt EmitLoopBody(KernelContext& context, int s, size_t depth, const Carried& carried);

// Is it a fragment that reduces what instructions have multiplied, of which only loops over its
// elements are left? These are each lane's own.
bool ReducesElements(const KernelContext& context, const ScheduledStage& stage, size_t depth) {
  if (stage.Note<Fragment>() == nullptr || stage.Note<Tensorize>() != nullptr ||
      !stage.is_reduction()) {
    return false;
  }
  const auto left = stage.loops.begin() + static_cast<std::ptrdiff_t>(depth);
  const auto reduces = [](const Loop& l) { return l.reduce; };
  bool reads_products = false;
  Visit(stage.body, [&](const Expr& load) {
    if (load->op != Op::kLoad) return;
    const int read = context.schedule.FindStage(load->buffer.get());
    reads_products =
        reads_products || (read >= 0 && context.stage(read).Note<Tensorize>() != nullptr);
  });
  return reads_products && std::any_of(stage.loops.begin(), left, reduces) &&
         std::none_of(left, stage.loops.end(), reduces);
}

// What stands in the loops of stage `s` where they end at `depth`, or where a matrix or a
// collective takes the place of those that are left; null where loops go on.
std::optional<Stmt> EmitInnermost(KernelContext& context, int s, size_t depth, Carried& carried) {
  const ScheduledStage& here = context.stage(s);
  if (here.Note<Tensorize>() != nullptr && depth + 3 == here.loops.size()) {
    if (!carried.guards.empty()) {
      return context.Fail(absl::StrCat("the sums of ", here.name(), " end inside a matrix"));
    }
    const Stmt multiply = EmitMatrixMultiply(context, s);
    return depth == GroupDepth(context, s) ? EmitGroup(context, s, multiply) : multiply;
  }
  if (ReducesElements(context, here, depth)) {
    if (!carried.guards.empty()) {
      return context.Fail(absl::StrCat("the terms of ", here.name(), " end inside a loop"));
    }
    return EmitReduceElements(context, s, carried.assumptions);
  }
  if (depth < here.loops.size()) return std::nullopt;
  if (here.Note<Fragment>() != nullptr) {
    return context.Fail(absl::StrCat("fragment ", here.name(),
                                     " is computed by matrix instructions alone; add tensorize"));
  }
  const Expr condition = TakeGuards(here, depth, carried);
  Stmt compute = EmitCompute(context, s, carried.only, carried.assumptions);
  return condition == nullptr ? compute : If(condition, compute);
}

// Before the first loop that reduces: what the reductions of the nest begin with.
void EmitBeginning(KernelContext& context, int s, size_t depth, const Carried& carried,
                   std::vector<Stmt>& out) {
  for (int member : context.Together(s)) {
    out.push_back(EmitInit(context, s, member, depth, carried.guards));
  }
  for (int r : RolledWith(context.schedule, s)) out.push_back(BeginRollingUpdate(context, r));
}

// The loops of stage `s` from `depth` on, around its computation.
Stmt EmitLoops(KernelContext& context, int s, size_t depth, Carried carried) {
  const ScheduledStage& here = context.stage(s);
  if (static_cast<int>(depth) == LoopOfBeside(context, s)) {
    AllocateBeside(context, s, depth);
    return EmitBeside(context, s, depth, EmitLoops(context, s, depth, carried));
  }
  if (carried.only < 0 && AreSeparate(context, s, depth)) {
    std::vector<Stmt> nests;
    for (int member : context.Together(s)) {
      carried.only = member;
      nests.push_back(EmitLoops(context, s, depth, carried));
    }
    return Seq(std::move(nests));
  }
  if (auto innermost = EmitInnermost(context, s, depth, carried)) return *std::move(innermost);
  const Loop& loop = here.loops[depth];
  std::vector<Stmt> out;
  const auto outer_end = here.loops.begin() + static_cast<std::ptrdiff_t>(depth);
  const bool first_reduce = loop.reduce && std::none_of(here.loops.begin(), outer_end,
                                                        [](const Loop& l) { return l.reduce; });
  if (first_reduce) EmitBeginning(context, s, depth, carried, out);
  // Guards stand as far out as they can, unless barriers stand below.
  Expr condition;
  if (!HasCollectiveBelow(context, s, depth)) condition = TakeGuards(here, depth, carried);
  const auto* pipeline = here.Note<Pipeline>();
  if (pipeline != nullptr && pipeline->loop == loop.var->name) {
    out.push_back(EmitPipeline(context, s, depth, carried, {EmitStage, EmitLoops, EmitLoopBody}));
    return Seq(std::move(out));
  }
  Expr useful;
  const bool reduces =
      std::any_of(here.loops.begin(), outer_end + 1, [](const Loop& l) { return l.reduce; });
  // What a mask leaves out are whole iterations of the outermost loop that stays one, with what is
  // fetched for them.
  const bool fetches = !context.AttachedAt(s, loop.var).empty();
  const bool rolled = loop.reduce && loop.kind == LoopKind::kSerial &&
                      (!fetches || carried.started == nullptr) &&
                      std::any_of(outer_end + 1, here.loops.end(),
                                  [](const Loop& l) { return l.reduce && l.IsIterated(); });
  const bool tests = !carried.tested && reduces && !HasCollectiveBelow(context, s, depth);
  Expr inside;
  if (tests && !rolled) useful = IsUseful(context, s, depth);
  if (tests && rolled && fetches) inside = IsUseful(context, s, depth + 1);
  carried.tested = carried.tested || (tests && (!rolled || fetches));
  Stmt body = EmitLoopBody(context, s, depth, carried);
  if (inside != nullptr) body = If(inside, body);
  if (condition != nullptr) body = If(condition, body);
  Stmt nest = InLoop(context, s, loop, std::move(body));
  if (useful != nullptr) nest = If(useful, nest);
  out.push_back(depth == GroupDepth(context, s) ? EmitGroup(context, s, nest) : nest);
  return Seq(std::move(out));
}

Stmt EmitLoopBody(KernelContext& context, int s, size_t depth, const Carried& carried) {
  const Loop& loop = context.stage(s).loops[depth];
  // Barriers, which all threads reach, stand around what is fetched for the terms.
  const bool makes_terms = MakesTermsIn(context, s, loop) && !carried.tested;
  const Expr useful = makes_terms ? IsUseful(context, s, depth + 1) : nullptr;
  // Copies that are started are of another tile, which may be of use where this one is not.
  const bool may_start = StartsCopies(context.stage(s), loop);
  const bool starts = carried.started != nullptr && may_start;
  // Where all were started before the loop, a tile of no use is not there either.
  const bool tests = may_start && !makes_terms && loop.reduce && !carried.tested &&
                     !AttachesCollective(context, s, loop) &&
                     !HasCollectiveBelow(context, s, depth + 1);
  const Expr of_use = tests ? IsUseful(context, s, depth + 1) : nullptr;
  Carried inside = carried;
  inside.tested = carried.tested || makes_terms || of_use != nullptr;
  std::vector<Stmt> fetches, body;
  std::vector<BufferRef> locals;
  std::vector<int> attached = context.AttachedAt(s, loop.var);
  // Products hide how long it takes until what is asked for first is there.
  std::stable_partition(attached.begin(), attached.end(),
                        [&](int a) { return IsHeldFromMemory(context, a); });
  for (int a : attached) {
    if (context.storage.contains(a) && context.stage(a).Note<RollingUpdate>() == nullptr) {
      continue;  // moved by a pipeline
    }
    const bool is_fetch = useful != nullptr && context.stage(a).scope == Scope::kShared;
    (is_fetch ? fetches : body).push_back(EmitAttached(context, a, makes_terms, carried, locals));
  }
  if (starts && of_use == nullptr) body.push_back(carried.started);
  body.push_back(EmitLoops(context, s, depth + 1, inside));
  Stmt out = Seq(std::move(body));
  for (const BufferRef& local : locals) out = Alloc(local, out);
  if (of_use != nullptr) out = If(of_use, out);
  if (of_use != nullptr && starts) out = Seq({carried.started, out});
  if (useful == nullptr) return out;
  fetches.push_back(If(useful, out));
  return Seq(std::move(fetches));
}

}  // namespace

Stmt EmitStage(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  if (here.Note<Fetch>() != nullptr) return EmitFetch(context, s, assumptions);
  if (here.Note<ShareScan>() != nullptr) return EmitSharedScan(context, s, assumptions);
  if (here.Note<Scatter>() != nullptr) return EmitScatter(context, s, assumptions);
  if (here.Note<RowFragment>() != nullptr) return EmitRowReduction(context, s, assumptions);
  if (here.Note<Fragment>() != nullptr && !here.is_reduction()) {
    return EmitLoadMatrix(context, s, assumptions);
  }
  const bool on_threads = std::any_of(here.loops.begin(), here.loops.end(),
                                      [](const Loop& l) { return l.kind == LoopKind::kThread; });
  if (here.scope == Scope::kShared && !on_threads) {
    return context.Fail(absl::StrCat("shared stage ", here.name(),
                                     " needs fetch, or a loop bound to thread: now every thread "
                                     "would compute all of it"));
  }
  std::vector<Stmt> nest = {EmitLoops(
      context, s, 0, {.guards = GuardsOf(context.schedule, here), .assumptions = assumptions})};
  if (const Loop* shared = here.shared_reduction(); shared != nullptr) {
    for (int member : context.Together(s)) nest.push_back(EmitCombine(context, member, *shared));
  }
  for (int r : RolledWith(context.schedule, s)) nest.push_back(EndRollingUpdate(context, r));
  return Seq(std::move(nest));
}

}  // namespace heddle::search_space
