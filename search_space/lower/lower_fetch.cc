// Fetches into shared memory, and the pipelines that run them ahead.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/lower/fetch_grid.h"
#include "search_space/lower/lower_kernel.h"

namespace heddle::search_space {

namespace {
constexpr int64_t kMaxUnrolledFetch = 32;
}  // namespace

BufferRef KernelBuilder::StagingRegisters(int s) const {
  const ScheduledStage& here = stage(s);
  return MakeBuffer(
      here.name() + ".staged", here.tensor->dtype, Scope::kLocal,
      {FetchTrips(here.extent, here.Note<Fetch>()->threads, here.Note<Fetch>()->vector),
       here.Note<Fetch>()->vector});
}

Stmt KernelBuilder::EmitFetch(int s, FetchPart part, const BufferRef& registers, const Expr& slot,
                              const Assumptions& outer_assumptions, const Share& share) {
  const ScheduledStage& here = stage(s);
  const FetchGrid grid = MakeFetchGrid(here, thread_);
  const Var &e = grid.trip, &v = grid.lane;
  const std::vector<Expr>& position = grid.position;
  Assumptions assumptions = outer_assumptions;
  const Expr moves = AndAlso(grid.thread_guard, grid.guard);
  const bool load_half = part == FetchPart::kLoadHalf;
  if (moves != nullptr && !load_half) assumptions.push_back(moves);
  const Expr value = [&]() -> Expr {
    if (part == FetchPart::kStoreHalf) return Load(registers, {VarExpr(e), VarExpr(v)});
    Expr at = Substitute(here.body, [&](const Var& var) -> Expr {
      for (size_t i = 0; i < here.axes.size(); ++i) {
        if (here.axes[i] == var) return Simplify(here.base[i] + position[i]);
      }
      return nullptr;
    });
    if (load_half && grid.whole_rows && moves != nullptr) {
      at = Select(moves, at, Float(0, at->type));
    }
    return Resolve(at, assumptions);
  }();
  Stmt move;
  if (load_half) {
    move = Store(registers, {VarExpr(e), VarExpr(v)}, value);
  } else {
    ExprList indices;
    if (slot != nullptr) indices.push_back(slot);
    indices.insert(indices.end(), position.begin(), position.end());
    if (part == FetchPart::kAsync) {
      const bool zero_filled = value->op == Op::kSelect && value->args[1]->op == Op::kLoad &&
                               value->args[2]->op == Op::kFloat && value->args[2]->float_value == 0;
      if (value->op != Op::kLoad && !zero_filled) {
        return Fail(absl::StrCat(here.name(),
                                 " cannot be copied asynchronously: its value is not "
                                 "a plain or zero-filled load"));
      }
      move = AsyncCopy(storage_.at(s), std::move(indices), value, 1);
    } else {
      move = Store(storage_.at(s), std::move(indices), value);
    }
  }
  if (grid.guard != nullptr && !load_half) move = If(grid.guard, move);
  if (v->extent > 1) move = For(v, ForKind::kVector, move);
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
  return grid.thread_guard != nullptr && !load_half ? If(grid.thread_guard, move) : move;
}

Share KernelBuilder::IterationOf(const ScheduledStage& here) const {
  Share share{Int(0)};
  for (auto l = static_cast<size_t>(here.FindLoop(here.Note<Pipeline>()->loop)) + 1;; ++l) {
    const Loop& loop = here.loops[l];
    if (loop.IsIterated() && loop.var->extent > 1) {
      share.number = share.number * Int(loop.var->extent) + VarExpr(loop.var);
      share.of *= loop.var->extent;
    }
    if (loop.var->name == here.Note<Interleave>()->loop) break;
  }
  share.number = Simplify(share.number);
  return share;
}

bool KernelBuilder::IsRepeated(int s, size_t depth) const {
  std::vector<const Loop*> around = EnclosingLoops(schedule_, stage(s));
  for (size_t l = 0; l < depth; ++l) around.push_back(&stage(s).loops[l]);
  return std::any_of(around.begin(), around.end(),
                     [](const Loop* l) { return l->IsIterated() && l->var->extent > 1; });
}

// One skeleton for pipelines: a prologue that fills, a steady state that issues the next fetch
// around the computation, and nothing left to drain.
Stmt KernelBuilder::EmitPipeline(int s, size_t depth, const std::vector<Expr>& guards,
                                 const Assumptions& assumptions) {
  const ScheduledStage& here = stage(s);
  const Pipeline& pipeline = *here.Note<Pipeline>();
  const Var loop = here.loops[depth].var;
  const Var prefetch =
      here.prefetch() == nullptr
          ? nullptr
          : here.loops[static_cast<size_t>(here.FindLoop(here.prefetch()->loop))].var;
  const int64_t buffers = pipeline.depth;
  const int64_t trips = loop->extent;
  const Var slot = MakeVar(loop->name + ".slot", buffers);
  const Expr k = VarExpr(loop);
  std::vector<int> fetched;
  for (int a : AttachedAt(s, loop)) {
    if (!(stage(a).Note<Fetch>() != nullptr)) continue;
    Allocate(a, buffers);
    managed_.insert(storage_.at(a).get());
    slots_[a] = VarExpr(slot);
    fetched.push_back(a);
  }
  const bool registers = pipeline.kind == PipelineKind::kRegisters;
  std::vector<BufferRef> staged;
  for (int a : fetched) staged.push_back(registers ? StagingRegisters(a) : nullptr);
  auto move = [&](FetchPart part, const Expr& iteration, const Expr& to, const Share& share = {}) {
    std::vector<Stmt> moves;
    for (size_t i = 0; i < fetched.size(); ++i) {
      moves.push_back(ReplaceVar(EmitFetch(fetched[i], part, staged[i], to, assumptions, share),
                                 loop, iteration));
    }
    return Seq(std::move(moves));
  };
  const int64_t ahead = registers ? 1 : buffers - 1;
  const Expr next = k + Int(ahead);
  const Expr in_range = Simplify(next < Int(trips));
  const Expr next_slot = Simplify((VarExpr(slot) + Int(ahead)) % Int(buffers));
  auto if_more = [&](const Stmt& st) { return trips > ahead ? If(in_range, st) : nullptr; };
  // One part of the copies that are ahead. Where there is nothing left to fetch, the last tile once
  // more, into a buffer that nobody reads any more: that costs less than a condition in every part.
  auto part = [&](const Share& share) {
    const Expr last_or_next = MakeExpr(Op::kMin, {next, Int(trips - 1)});
    return trips > ahead ? move(FetchPart::kAsync, last_or_next, next_slot, share) : nullptr;
  };
  const bool interleaved = here.Note<Interleave>() != nullptr;
  std::vector<BufferRef> fragments;
  if (prefetch != nullptr) {
    for (int a : AttachedAt(s, prefetch)) {
      Allocate(a, 2);
      slots_[a] = Simplify(VarExpr(prefetch) % Int(2));
      fragments.push_back(storage_.at(a));
    }
  } else if (interleaved) {
    interleaved_[s] = part(IterationOf(here));
  }
  // The register stages of iteration `at` of the inner loop, of the tile `iteration` in slot
  // `from`.
  auto read = [&](const Expr& iteration, const Expr& from, const Expr& at) {
    std::vector<Stmt> reads;
    for (int a : AttachedAt(s, prefetch)) {
      const Stmt nest = ReplaceVar(EmitStage(a, assumptions), prefetch, at);
      reads.push_back(ReplaceVar(ReplaceVar(nest, slot, from), loop, iteration));
    }
    return Seq(std::move(reads));
  };
  auto use = [&](const Expr& at) {
    return ReplaceVar(EmitLoops(s, depth + 2, guards, assumptions), prefetch, at);
  };
  Stmt compute, last;
  if (prefetch != nullptr) {
    // All but the last iteration read ahead within the tile; the last reads the next tile's first
    // fragments, which the barrier must come before.
    const int64_t steps = prefetch->extent;
    const Var step = MakeVar(prefetch->name, steps - 1);
    const Expr i = VarExpr(step);
    compute = For(step, ForKind::kSerial,
                  Seq({read(k, VarExpr(slot), i + Int(1)),
                       interleaved ? part({i, steps - 1}) : nullptr, use(i)}));
    const Expr after = Simplify((VarExpr(slot) + Int(1)) % Int(buffers));
    if (trips > 1) {
      last = If(Simplify(k + Int(1) < Int(trips)), read(Simplify(k + Int(1)), after, Int(0)));
    }
    last = Seq({last, use(Int(steps - 1))});
  } else {
    compute = EmitLoopBody(s, depth, guards, assumptions);
  }
  std::vector<Stmt> prologue, steady;
  if (registers) {
    prologue = {move(FetchPart::kLoadHalf, Int(0), nullptr),
                move(FetchPart::kStoreHalf, Int(0), Int(0)), Barrier()};
    steady = {if_more(move(FetchPart::kLoadHalf, next, nullptr)), compute,
              if_more(move(FetchPart::kStoreHalf, next, next_slot)), Barrier(), last};
  } else {
    for (int64_t i = 0; i < ahead; ++i) {
      if (i < trips) prologue.push_back(move(FetchPart::kAsync, Int(i), Int(i)));
      prologue.push_back(AsyncCommit());
    }
    const Stmt wait = Seq({AsyncWait(buffers - 2), Barrier()});
    (prefetch != nullptr ? prologue : steady).push_back(wait);
    if (!interleaved) {
      steady.push_back(if_more(move(FetchPart::kAsync, next, next_slot)));
      steady.push_back(AsyncCommit());
    }
    steady.push_back(compute);
    if (interleaved) steady.push_back(AsyncCommit());
    if (prefetch != nullptr) steady.insert(steady.end(), {trips > 1 ? wait : nullptr, last});
  }
  if (prefetch != nullptr) prologue.push_back(read(Int(0), Int(0), Int(0)));
  auto steady_loop = std::make_shared<StmtNode>(*For(loop, ForKind::kSerial, Seq(steady)));
  steady_loop->rotating = slot;
  prologue.push_back(Stmt(steady_loop));
  // A loop around this one fills the buffers again: everyone must be done with them.
  if (interleaved && trips > ahead && IsRepeated(s, depth)) prologue.push_back(AsyncWait(0));
  if (!registers) prologue.push_back(Barrier());
  Stmt out = Seq(std::move(prologue));
  for (const BufferRef& r : staged) {
    if (r != nullptr) out = Alloc(r, out);
  }
  for (const BufferRef& f : fragments) out = Alloc(f, out);
  return out;
}

}  // namespace heddle::search_space
