#include "search_space/lower/copies/pipeline.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/matrix/fragments.h"
#include "search_space/schedule/copies/fetch.h"
#include "search_space/schedule/copies/in_flight.h"
#include "search_space/schedule/copies/pipeline.h"

namespace heddle::search_space {
namespace {

// The loop in which registers run ahead; null without one.
Var PrefetchLoopOf(const ScheduledStage& stage) {
  const Pipeline* prefetch = PrefetchOf(stage);
  if (prefetch == nullptr) return nullptr;
  return stage.loops[static_cast<size_t>(stage.FindLoop(prefetch->loop))].var;
}

// The loop with which copies are interleaved; null without one.
Var InterleavedLoopOf(const ScheduledStage& stage) {
  for (const Loop& loop : stage.loops) {
    if (loop.interleaved) return loop.var;
  }
  return nullptr;
}

// Does a thread run the loop at `depth` of the stage's nest more than once?
bool IsRepeated(const KernelContext& context, const ScheduledStage& stage, size_t depth) {
  std::vector<const Loop*> around = EnclosingLoops(context.schedule, stage);
  for (size_t l = 0; l < depth; ++l) around.push_back(&stage.loops[l]);
  return std::any_of(around.begin(), around.end(),
                     [](const Loop* l) { return l->IsIterated() && l->var->extent > 1; });
}

// With storage for what it fetches.
PipelinedLoop MakePipelinedLoop(KernelContext& context, int s, size_t depth,
                                const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  PipelinedLoop p{.stage = s,
                  .depth = depth,
                  .loop = here.loops[depth].var,
                  .buffers = here.Note<Pipeline>()->depth,
                  .prefetch = PrefetchLoopOf(here),
                  .interleave = InterleavedLoopOf(here),
                  .last = !IsRepeated(context, here, depth),
                  .in_background = MultipliesInBackground(here),
                  .in_flight = here.Note<InFlight>() == nullptr ? 0 : here.Note<InFlight>()->tiles,
                  .assumptions = assumptions};
  p.slot = MakeVar(p.loop->name + ".slot", p.buffers);
  for (int a : context.AttachedAt(s, p.loop)) {
    if (context.stage(a).Note<Fetch>() == nullptr) continue;
    context.Allocate(a, p.buffers, VarExpr(p.slot));
    p.fetched.push_back(a);
  }
  return p;
}

std::unique_ptr<TileCopies> MakeCopies(KernelContext& context, const PipelinedLoop& p) {
  switch (context.stage(p.stage).Note<Pipeline>()->kind) {
    case PipelineKind::kRegisters:
      return CopiesThroughRegisters(context, p);
    case PipelineKind::kAsyncCopy:
      return AsynchronousCopies(context, p);
    case PipelineKind::kBulkCopy:
      return BulkCopies(context, p);
  }
  HEDDLE_CHECK(false, "a pipeline without a way to copy");
}

// The iterations of the loops between the pipelined one and the one that copies are interleaved
// with, counted through.
Share IterationOf(const KernelContext& context, const PipelinedLoop& p) {
  Share share{Int(0)};
  for (size_t l = p.depth + 1;; ++l) {
    const Loop& loop = context.stage(p.stage).loops[l];
    if (loop.IsIterated() && loop.var->extent > 1) {
      share.number = share.number * Int(loop.var->extent) + VarExpr(loop.var);
      share.of *= loop.var->extent;
    }
    if (loop.var == p.interleave) break;
  }
  share.number = Simplify(share.number);
  return share;
}

// The buffer of the tile that is so many iterations further.
Expr SlotAfter(const PipelinedLoop& p, int64_t iterations) {
  return Simplify((VarExpr(p.slot) + Int(iterations)) % Int(p.buffers));
}

// Is there such a tile?
Expr ExistsAfter(const PipelinedLoop& p, int64_t iterations) {
  return Simplify(VarExpr(p.loop) + Int(iterations) < Int(p.loop->extent));
}

// One share of the copies that are ahead. Where there is nothing left to fetch, the last tile once
// more, into a buffer that nobody reads any more: that costs less than a condition in every share.
Stmt IssueShare(const PipelinedLoop& p, TileCopies& copies, const Share& share) {
  const int64_t ahead = copies.ahead(), tiles = p.loop->extent;
  if (tiles <= ahead) return nullptr;
  const Expr tile = MakeExpr(Op::kMin, {VarExpr(p.loop) + Int(ahead), Int(tiles - 1)});
  return copies.Issue(tile, SlotAfter(p, ahead), Int(1), share);
}

// What an iteration computes with its tile.
struct Computation {
  Stmt before;  // the loop: what the first iteration finds in registers
  Stmt body;
  Stmt after;  // the next tile is acquired
  std::vector<BufferRef> registers;
};

// The register stages of the loop inside run ahead: all but its last iteration read for the next
// within the tile; the last reads the next tile's first registers.
Computation RunAhead(KernelContext& context, const PipelinedLoop& p, TileCopies& copies,
                     const Carried& carried, const NestEmitter& emit) {
  Computation c;
  const std::vector<int> attached = context.AttachedAt(p.stage, p.prefetch);
  for (int a : attached) {
    c.registers.push_back(context.Allocate(a, 2, Simplify(VarExpr(p.prefetch) % Int(2))));
  }
  // What iteration `at` reads, of tile `tile` in buffer `from`.
  auto read = [&](const Expr& tile, const Expr& from, const Expr& at) {
    std::vector<Stmt> reads;
    for (int a : attached) {
      const Stmt nest = ReplaceVar(emit.stage(context, a, p.assumptions), p.prefetch, at);
      reads.push_back(ReplaceVar(ReplaceVar(nest, p.slot, from), p.loop, tile));
    }
    return Seq(std::move(reads));
  };
  auto use = [&](const Expr& at) {
    return ReplaceVar(emit.loops(context, p.stage, p.depth + 2, carried), p.prefetch, at);
  };
  const int64_t steps = p.prefetch->extent;
  const Var step = MakeVar(p.prefetch->name, steps - 1);
  const Expr k = VarExpr(p.loop), i = VarExpr(step);
  const Stmt next = read(k, VarExpr(p.slot), i + Int(1));
  const Stmt share = p.interleave != nullptr ? IssueShare(p, copies, {i, steps - 1}) : nullptr;
  c.body = For(step, ForKind::kSerial, Seq({next, share, use(i)}));
  const Expr exists = ExistsAfter(p, 1);
  if (!IsInt(exists, 0)) {
    c.after = If(exists, read(Simplify(k + Int(1)), SlotAfter(p, 1), Int(0)));
  }
  c.after = Seq({c.after, use(Int(steps - 1))});
  c.before = read(Int(0), Int(0), Int(0));
  return c;
}

Computation Compute(KernelContext& context, const PipelinedLoop& p, TileCopies& copies,
                    const Carried& carried, const NestEmitter& emit) {
  if (p.prefetch != nullptr && p.in_background) {
    return {.body = context.Fail("products in background read no registers that run ahead")};
  }
  if (p.prefetch != nullptr) return RunAhead(context, p, copies, carried, emit);
  Carried inside = carried;
  if (p.interleave != nullptr) {
    inside.started = IssueShare(p, copies, IterationOf(context, p));
  }
  return {.body = emit.loop_body(context, p.stage, p.depth, inside)};
}

// The loop over tiles: what is done with each, the wait for products into `products` (null: there
// are none in background), and what is done behind. With some in flight the last tile stands behind
// the loop, so that the wait for all is right behind these products: in the loop ptxas 13.0 would
// wait for all in every iteration, and behind a loop alone it moves what reads the sums in front of
// the wait (docs/notebook.md, bulk copies).
Stmt EmitTiles(const PipelinedLoop& p, const Stmt& begin, const BufferRef& products,
               const Stmt& end) {
  const int64_t tiles = p.loop->extent;
  const auto tile = [&](int64_t pending) {
    return Seq({begin, products != nullptr ? ProductWait(pending, products) : nullptr, end});
  };
  const auto loop_of = [&](const Var& var, Stmt body) {
    auto loop = std::make_shared<StmtNode>(*For(var, ForKind::kSerial, std::move(body)));
    loop->rotating = p.slot;
    return Stmt(loop);
  };
  if (p.in_flight == 0) return loop_of(p.loop, tile(0));
  const Stmt last =
      ReplaceVar(ReplaceVar(tile(0), p.slot, Int((tiles - 1) % p.buffers)), p.loop, Int(tiles - 1));
  if (tiles == 1) return last;
  const Var others = MakeVar(p.loop->name, tiles - 1);
  return Seq({loop_of(others, ReplaceVar(tile(p.in_flight), p.loop, VarExpr(others))), last});
}

// In front of the loop over tiles, `first` being the Issue of those that come first. A block that
// stays has these from the time when it ended what it did before.
Stmt BeginTiles(KernelContext& context, TileCopies& copies, const Stmt& first) {
  const Stmt all = Seq({copies.Prepare(), first});
  if (!context.persistent.has_value()) return all;
  if (!copies.MayGoOn() || context.persistent->begin != nullptr) {
    return context.Fail(absl::StrCat("blocks of ", context.persistent->number->name,
                                     " stay (persist) where one pipeline, of bulk copies, fetches ",
                                     "tiles"));
  }
  context.persistent->begin = all;
  // What threads have put beside the tiles is seen by all, and where they have stored a result
  // other tiles may be copied to.
  return Seq({ProxyFence(), Barrier()});
}

// Behind it. The buffers are filled anew when all threads are done with the last tiles.
Stmt EndTiles(const KernelContext& context, TileCopies& copies, const Stmt& first) {
  if (!context.persistent.has_value()) return copies.Release();
  return Seq({Barrier(), context.persistent->ForNext(first)});
}

}  // namespace

Stmt When(const Expr& condition, const Stmt& s) {
  if (condition->op != Op::kInt) return If(condition, s);
  return condition->int_value != 0 ? s : nullptr;
}

Stmt EmitPipeline(KernelContext& context, int s, size_t depth, const Carried& carried,
                  const NestEmitter& emit) {
  const PipelinedLoop p = MakePipelinedLoop(context, s, depth, carried.assumptions);
  const std::unique_ptr<TileCopies> copies = MakeCopies(context, p);
  const Computation computation = Compute(context, p, *copies, carried, emit);
  const Expr k = VarExpr(p.loop), always = Int(1);
  const int64_t ahead = copies->ahead();
  std::vector<Stmt> issues;
  for (int64_t i = 0; i < ahead; ++i) {
    issues.push_back(copies->Issue(Int(i), Int(i), Int(i < p.loop->extent ? 1 : 0), {}));
  }
  const Stmt first = Seq(std::move(issues));
  std::vector<Stmt> out = {BeginTiles(context, *copies, first)};
  if (copies->AcquiresEarly()) out.push_back(copies->Acquire(Int(0), Int(0), always));
  out.push_back(computation.before);

  std::vector<Stmt> body;
  if (!copies->AcquiresEarly()) body.push_back(copies->Acquire(k, VarExpr(p.slot), always));
  const Stmt issue = p.interleave != nullptr ? nullptr
                                             : copies->Issue(k + Int(ahead), SlotAfter(p, ahead),
                                                             ExistsAfter(p, ahead), {});
  // Beside products in background copies are started.
  const bool beside = p.in_background && !WaitsForGroups(context, s);
  const BufferRef products = beside ? context.storage.at(s).buffer : nullptr;
  if (beside) {
    body.insert(body.end(), {computation.body, issue});
  } else {
    body.insert(body.end(), {issue, computation.body});
  }
  std::vector<Stmt> after = {copies->Consumed()};
  if (copies->AcquiresEarly()) {
    after.push_back(copies->Acquire(k + Int(1), SlotAfter(p, 1), ExistsAfter(p, 1)));
  }
  after.push_back(computation.after);

  out.insert(out.end(), {EmitTiles(p, Seq(std::move(body)), products, Seq(std::move(after))),
                         EndTiles(context, *copies, first)});
  Stmt pipeline = Seq(std::move(out));
  for (const BufferRef& r : copies->registers()) pipeline = Alloc(r, pipeline);
  for (const BufferRef& r : computation.registers) pipeline = Alloc(r, pipeline);
  return pipeline;
}

}  // namespace heddle::search_space
