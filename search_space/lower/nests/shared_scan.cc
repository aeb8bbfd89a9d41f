#include "search_space/lower/nests/shared_scan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/values.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/threads/dealt_axis.h"

namespace heddle::search_space {
namespace {

class SharedScan {
 public:
  SharedScan(KernelContext& context, int s)
      : context_(context),
        here_(context.stage(s)),
        scan_(*ScanOf(here_)),
        dealt_(*DealtAxisOf(here_)),
        buffer_(context.storage.at(s).buffer),
        rounds_(here_.extent[scan_.axis] / (dealt_.threads * dealt_.vector)),
        runs_(Registers("runs")),
        lowest_(scan_.level == nullptr ? nullptr : Registers("lowest")),
        levels_(scan_.level == nullptr ? nullptr : Levels()),
        thread_(VarExpr(context.thread)) {}

  Stmt Emit(const Assumptions& assumptions) {
    std::vector<Stmt> all = {ReduceRuns(assumptions)};
    all.push_back(levels_ != nullptr               ? CombineDecayingSlices()
                  : dealt_.sliced                  ? CombineSlices()
                  : dealt_.threads <= kWarpThreads ? CombineInWarp()
                                                   : CombineAcrossWarps());
    all.push_back(AddToElements());
    Stmt scan = Alloc(runs_, Seq(std::move(all)));
    if (levels_ != nullptr) scan = Alloc(lowest_, Alloc(levels_, scan));
    return scan;
  }

 private:
  BufferRef Registers(const char* of) const {
    return MakeBuffer(absl::StrCat(here_.name(), ".", of), buffer_->dtype, Scope::kLocal,
                      {rounds_});
  }
  // Of each element that the thread holds.
  BufferRef Levels() const {
    return MakeBuffer(here_.name() + ".levels", buffer_->dtype, Scope::kLocal,
                      {rounds_, dealt_.vector});
  }
  // What is left at level `to` of a sum relative to `from`. Of nothing it is nothing, wherever
  // these lie.
  Expr Decayed(const Expr& sum, const Expr& from, const Expr& to) const {
    const Expr zero = Float(0, sum->type);
    return Select(IsNothing(sum), zero, sum * DecayOf(scan_.slope, from, to));
  }
  static Expr IsNothing(const Expr& sum) { return MakeExpr(Op::kEq, {sum, Float(0, sum->type)}); }
  // Adds `value`, relative to `level`, to a sum that is relative to `lowest`: what is not nothing
  // is relative to the level from which nothing grows on the way to the other. Where `counts`, if
  // that is not null.
  Stmt Append(const BufferRef& sum, const BufferRef& lowest, const ExprList& at, const Expr& value,
              const Expr& level, const Expr& counts) const {
    const ExprList zero = {Int(0)};
    const auto one = [&](const char* of) {
      return MakeBuffer(absl::StrCat(sum->name, of), sum->dtype, Scope::kLocal, {1});
    };
    const BufferRef term = one(".term"), next = one(".next");
    const Expr now = Load(sum, at), from = Load(lowest, at), added = Load(term, zero);
    const Expr lower = MakeExpr(scan_.slope > 0 ? Op::kMin : Op::kMax, {from, level});
    const Expr to = Select(IsNothing(now), level, Select(IsNothing(added), from, lower));
    const Expr both = Decayed(now, from, to) + Decayed(added, level, to);
    const auto where = [&](const Expr& then, const Expr& otherwise) {
      return counts == nullptr ? then : Select(counts, then, otherwise);
    };
    return Alloc(
        term,
        Alloc(next, Seq({Store(term, zero, value), Store(next, zero, where(both, now)),
                         Store(lowest, at, where(to, from)), Store(sum, at, Load(next, zero))})));
  }
  Expr Identity() const { return IdentityOf(here_.combiner, buffer_->dtype); }
  Expr Combined(const Expr& a, const Expr& b) const { return Combine(here_.combiner, a, b); }

  static Expr At(const Var& var) { return var->extent == 1 ? Int(0) : VarExpr(var); }
  // body(i) for i = 0 .. extent - 1, the last one first where `backwards`; unrolled.
  static Stmt ForEach(const char* name, int64_t extent, bool backwards,
                      const std::function<Stmt(const Expr&)>& body) {
    const Var var = MakeVar(name, extent);
    const Expr at = At(var);
    const Stmt inside = body(backwards ? Simplify(Int(extent - 1) - at) : at);
    return extent == 1 ? inside : For(var, ForKind::kUnrolled, inside);
  }
  Stmt ForRounds(const std::function<Stmt(const Expr&)>& body) const {
    return ForEach("round", rounds_, scan_.reversed, body);
  }
  // In groups that are unrolled, so that their loads are under way together: all of them written
  // out take compilers most of a minute where there are many.
  Stmt ForSlices(const std::function<Stmt(const Expr&)>& body) const {
    constexpr int64_t kUnrolled = 8;
    if (dealt_.threads <= 2 * kUnrolled || dealt_.threads % kUnrolled != 0) {
      return ForEach("slice", dealt_.threads, scan_.reversed, body);
    }
    const Var group = MakeVar("group", dealt_.threads / kUnrolled);
    const Expr number =
        scan_.reversed ? Simplify(Int(group->extent - 1) - VarExpr(group)) : VarExpr(group);
    return For(group, ForKind::kSerial,
               ForEach("slice", kUnrolled, scan_.reversed, [&](const Expr& slice) {
                 return body(Simplify(number * Int(kUnrolled) + slice));
               }));
  }
  Stmt Copy(const BufferRef& to, const BufferRef& from) const {
    return ForRounds([&](const Expr& k) { return Store(to, {k}, Load(from, {k})); });
  }
  Stmt InWarp(bool all, const BufferRef& registers, int64_t threads) const {
    return ForRounds([&](const Expr& k) {
      if (all) return WarpReduce(here_.combiner, registers, {k}, threads);
      return scan_.reversed ? WarpSuffix(here_.combiner, registers, {k}, threads)
                            : WarpPrefix(here_.combiner, registers, {k}, threads);
    });
  }

  // The indices of the thread's element e of run k.
  ExprList ElementAt(const Expr& k, const Expr& e) const {
    ExprList indices(here_.axes.size(), Int(0));
    indices[scan_.axis] = Simplify(k * Int(dealt_.vector) + e);
    return indices;
  }

  // Each run's prefixes, and in `runs` what it is reduced to.
  Stmt ReduceRuns(const Assumptions& assumptions) {
    const size_t first = scan_.axis;
    const Loop &round = here_.loops[first], &lane = here_.loops[first + 1],
               &run = here_.loops[first + 2];
    Expr term = AtLoops(context_.schedule, here_, scan_.term);
    if (scan_.reversed) {  // what lies past the end comes first
      const Expr inside = Simplify(context_.schedule.AxisValue(here_, scan_.axis) <
                                   Int(here_.axes[scan_.axis]->extent));
      if (inside->op != Op::kInt) term = Select(inside, term, Identity());
    }
    term = Resolve(context_, term, assumptions);
    Expr level;
    if (scan_.level != nullptr) {
      level = Resolve(context_, AtLoops(context_.schedule, here_, scan_.level), assumptions);
    }
    return ForRounds([&](const Expr& k) {
      Stmt reset = Store(runs_, {k}, Identity());
      if (level != nullptr) reset = Seq({reset, Store(lowest_, {k}, Identity())});
      const Stmt elements = ForEach("element", dealt_.vector, scan_.reversed, [&](const Expr& e) {
        const auto in_place = [&](Stmt s) {
          s = ReplaceVar(s, run.var, e);
          s = ReplaceVar(s, round.var, k);
          return ReplaceVar(s, lane.var, dealt_.PlaceOf(context_.thread));
        };
        const ExprList here = {k};
        Stmt add = level == nullptr
                       ? Store(runs_, here, Combined(Load(runs_, here), term))
                       : Append(runs_, lowest_, here, term, Load(levels_, {k, e}), nullptr);
        for (size_t l = here_.loops.size(); l-- > 0;) {
          const Loop& loop = here_.loops[l];
          if (!loop.reduce || loop.var == here_.loops[ReducedLoop()].var) continue;
          if (loop.var->extent > 1) add = For(loop.var, ForKind::kSerial, add);
        }
        add = in_place(add);
        if (level == nullptr) {
          const Stmt keep = Store(buffer_, ElementAt(k, e), Load(runs_, here));
          return scan_.strict ? Seq({keep, add}) : Seq({add, keep});
        }
        const Expr own = Load(levels_, {k, e});
        const Stmt keep =
            Store(buffer_, ElementAt(k, e), Decayed(Load(runs_, here), Load(lowest_, here), own));
        const Stmt set = in_place(Store(levels_, {k, e}, level));
        return scan_.strict ? Seq({set, keep, add}) : Seq({set, add, keep});
      });
      return Seq({reset, elements});
    });
  }
  // Of the axis along which prefixes are reduced, which no term mentions any more.
  size_t ReducedLoop() const {
    return static_cast<size_t>(
        here_.FindLoop(here_.values[here_.axes.size() + scan_.reduced]->var));
  }

  // Turns what comes before a run in its round into what comes before it at all. `totals`: of whole
  // rounds.
  Stmt AddRounds(const BufferRef& totals) const {
    if (rounds_ == 1) return Seq({});
    const BufferRef carry = MakeBuffer(here_.name() + ".carry", buffer_->dtype, Scope::kLocal, {1});
    const ExprList zero = {Int(0)};
    return Alloc(
        carry,
        Seq({Store(carry, zero, Identity()), ForRounds([&](const Expr& k) {
               return Seq({Store(runs_, {k}, Combined(Load(carry, zero), Load(runs_, {k}))),
                           Store(carry, zero, Combined(Load(carry, zero), Load(totals, {k})))});
             })}));
  }

  Stmt CombineInWarp() const {
    if (rounds_ == 1) return InWarp(false, runs_, dealt_.threads);
    const BufferRef totals = Registers("totals");
    return Alloc(totals, Seq({Copy(totals, runs_), InWarp(true, totals, dealt_.threads),
                              InWarp(false, runs_, dealt_.threads), AddRounds(totals)}));
  }

  // Each warp leaves what its runs of a round are reduced to in shared memory; the warps of a group
  // then read all of them.
  Stmt CombineAcrossWarps() const {
    const int64_t warps = dealt_.threads / kWarpThreads;
    const BufferRef totals = Registers("totals"), before = Registers("before");
    const BufferRef scratch = MakeBuffer(here_.name() + ".warps", buffer_->dtype, Scope::kShared,
                                         {rounds_, context_.thread->extent / kWarpThreads});
    const Expr last = Simplify(MakeExpr(
        Op::kEq, {thread_ % Int(kWarpThreads), Int(scan_.reversed ? 0 : kWarpThreads - 1)}));
    const Expr other = thread_ % Int(warps),
               mine = thread_ % Int(dealt_.threads) / Int(kWarpThreads);
    const Expr precedes = Simplify(scan_.reversed ? mine < other : other < mine);
    const Stmt to_warp = ForRounds([&](const Expr& k) {
      return Store(totals, {k}, Combined(Load(runs_, {k}), Load(totals, {k})));
    });
    const Stmt leave = ForRounds([&](const Expr& k) {
      return Store(scratch, {k, Simplify(thread_ / Int(kWarpThreads))}, Load(totals, {k}));
    });
    const Stmt take = ForRounds([&](const Expr& k) {
      const Expr at = Simplify(thread_ / Int(dealt_.threads) * Int(warps) + other);
      return Seq({Store(totals, {k}, Load(scratch, {k, at})),
                  Store(before, {k}, Select(precedes, Load(totals, {k}), Identity()))});
    });
    const Stmt to_runs = ForRounds([&](const Expr& k) {
      return Store(runs_, {k}, Combined(Load(before, {k}), Load(runs_, {k})));
    });
    return Alloc(
        totals, Alloc(before, Seq({Copy(totals, runs_), InWarp(false, runs_, kWarpThreads), to_warp,
                                   If(last, leave), take, InWarp(true, before, warps), to_runs,
                                   rounds_ == 1 ? Seq({}) : InWarp(true, totals, warps),
                                   AddRounds(totals)})));
  }

  // Each thread leaves what its runs are reduced to in shared memory and reads those of all slices.
  Stmt CombineSlices() const {
    const int64_t places = context_.thread->extent / dealt_.threads;
    const Expr place = Simplify(thread_ % Int(places)), mine = dealt_.PlaceOf(context_.thread);
    const BufferRef scratch = MakeBuffer(here_.name() + ".slices", buffer_->dtype, Scope::kShared,
                                         {rounds_, dealt_.threads, places});
    const BufferRef carry = MakeBuffer(here_.name() + ".carry", buffer_->dtype, Scope::kLocal, {1});
    const ExprList zero = {Int(0)};
    const Stmt leave = ForRounds([&](const Expr& k) {
      return Store(scratch, {k, mine, place}, Load(runs_, {k}));
    });
    const Stmt take = ForRounds([&](const Expr& k) {
      const Stmt slices = ForSlices([&](const Expr& slice) {
        const Expr value = Load(scratch, {k, slice, place});
        const Expr precedes = scan_.reversed ? mine < slice : slice < mine;
        return Seq(
            {Store(runs_, {k}, Combined(Load(runs_, {k}), Select(precedes, value, Identity()))),
             rounds_ == 1 ? Seq({}) : Store(carry, zero, Combined(Load(carry, zero), value))});
      });
      return Seq({Store(runs_, {k}, Load(carry, zero)), slices});
    });
    return Seq({leave, Alloc(carry, Seq({Store(carry, zero, Identity()), take}))});
  }

  // The same of sums that decay.
  Stmt CombineDecayingSlices() const {
    const int64_t places = context_.thread->extent / dealt_.threads;
    const Expr place = Simplify(thread_ % Int(places)), mine = dealt_.PlaceOf(context_.thread);
    const auto shared = [&](const char* of) {
      return MakeBuffer(absl::StrCat(here_.name(), ".", of), buffer_->dtype, Scope::kShared,
                        {rounds_, dealt_.threads, places});
    };
    const auto carried = [&](const char* of) {
      return MakeBuffer(absl::StrCat(here_.name(), ".", of), buffer_->dtype, Scope::kLocal, {1});
    };
    const BufferRef sums = shared("slices"), lowest = shared("slice_lowest");
    const BufferRef carry = carried("carry"), carry_lowest = carried("carry_lowest");
    const ExprList zero = {Int(0)};
    const Stmt leave = ForRounds([&](const Expr& k) {
      return Seq({Store(sums, {k, mine, place}, Load(runs_, {k})),
                  Store(lowest, {k, mine, place}, Load(lowest_, {k}))});
    });
    const Stmt take = ForRounds([&](const Expr& k) {
      const Stmt slices = ForSlices([&](const Expr& slice) {
        const Expr value = Load(sums, {k, slice, place}), level = Load(lowest, {k, slice, place});
        const Expr precedes = scan_.reversed ? mine < slice : slice < mine;
        return Seq(
            {Append(runs_, lowest_, {k}, value, level, precedes),
             rounds_ == 1 ? Seq({}) : Append(carry, carry_lowest, zero, value, level, nullptr)});
      });
      return Seq({Store(runs_, {k}, Load(carry, zero)),
                  Store(lowest_, {k}, Load(carry_lowest, zero)), slices});
    });
    const Stmt begin = Seq({Store(carry, zero, Identity()), Store(carry_lowest, zero, Identity())});
    return Seq({leave, Alloc(carry, Alloc(carry_lowest, Seq({begin, take})))});
  }

  Stmt AddToElements() const {
    return ForRounds([&](const Expr& k) {
      return ForEach("element", dealt_.vector, false, [&](const Expr& e) {
        const ExprList at = ElementAt(k, e);
        const Expr before = levels_ == nullptr ? Load(runs_, {k})
                                               : Decayed(Load(runs_, {k}), Load(lowest_, {k}),
                                                         Load(levels_, {k, e}));
        return Store(buffer_, at, Combined(before, Load(buffer_, at)));
      });
    });
  }

  KernelContext& context_;
  const ScheduledStage& here_;
  const Scan scan_;
  const DealtAxis dealt_;
  const BufferRef buffer_;
  const int64_t rounds_;
  const BufferRef runs_;
  // Of sums that decay: the levels that runs' sums are relative to, and those of all elements.
  const BufferRef lowest_, levels_;
  const Expr thread_;
};

}  // namespace

Stmt EmitSharedScan(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const DealtAxis dealt = *DealtAxisOf(here);
  const int64_t threads = context.thread->extent;
  for (size_t i = 0; i < here.axes.size(); ++i) {
    if (i == dealt.axis || here.extent[i] == 1) continue;
    return context.Fail(absl::StrCat("threads would share ", here.extent[i], " scans ", here.name(),
                                     " along ", here.axes[i]->name,
                                     "; compute it at a loop of one"));
  }
  if (threads % dealt.threads != 0 || (!dealt.sliced && threads % kWarpThreads != 0)) {
    return context.Fail(absl::StrCat(
        dealt.threads, " threads share the scan ", here.name(), ", but the block has ", threads,
        dealt.sliced ? ": it must be equal parts" : ": it must be whole warps and whole groups"));
  }
  return SharedScan(context, s).Emit(assumptions);
}

}  // namespace heddle::search_space
