#include "search_space/lower/nests/collectives.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

// make(indices) for every element of `registers`, in unrolled loops.
Stmt ForEach(const BufferRef& registers, const std::function<Stmt(const ExprList&)>& make) {
  std::vector<Var> vars;
  ExprList at;
  for (int64_t extent : registers->shape) {
    vars.push_back(MakeVar(absl::StrCat("e", vars.size()), extent));
    at.push_back(extent == 1 ? Int(0) : VarExpr(vars.back()));
  }
  Stmt nest = make(at);
  for (size_t i = vars.size(); i-- > 0;) {
    if (vars[i]->extent > 1) nest = For(vars[i], ForKind::kUnrolled, nest);
  }
  return nest;
}

ExprList With(ExprList list, const Expr& last) {
  list.push_back(Simplify(last));
  return list;
}

}  // namespace

Stmt CombineNeighbours(Combiner combiner, const BufferRef& registers, const Var& thread,
                       int64_t group) {
  Stmt in_warp = ForEach(registers, [&](const ExprList& at) {
    return WarpReduce(combiner, registers, at, std::min(group, kWarpThreads));
  });
  if (group <= kWarpThreads) return in_warp;
  // Each warp leaves its result in shared memory; the warps of a group then read all of them.
  const int64_t warps = group / kWarpThreads;
  const Expr t = VarExpr(thread);
  std::vector<int64_t> shape = registers->shape;
  shape.push_back(thread->extent / kWarpThreads);
  const BufferRef scratch =
      MakeBuffer(registers->name + ".warps", registers->dtype, Scope::kShared, std::move(shape));
  Stmt leave = ForEach(registers, [&](const ExprList& at) {
    return Store(scratch, With(at, t / Int(kWarpThreads)), Load(registers, at));
  });
  Stmt take = ForEach(registers, [&](const ExprList& at) {
    const Expr mine = t / Int(group) * Int(warps) + t % Int(warps);
    return Store(registers, at, Load(scratch, With(at, mine)));
  });
  Stmt across = ForEach(
      registers, [&](const ExprList& at) { return WarpReduce(combiner, registers, at, warps); });
  return Seq({in_warp, If(Simplify(t % Int(kWarpThreads) < Int(1)), leave), take, across});
}

Stmt CombineSlices(Combiner combiner, const BufferRef& registers, const Var& thread, int64_t slices,
                   bool for_all, const std::vector<Var>& vthreads) {
  const int64_t threads = thread->extent / slices;
  const Expr slice = VarExpr(thread) / Int(threads), place = VarExpr(thread) % Int(threads);
  // Runs of up to 16 bytes of one thread, neighbours side by side: no conflicts of banks.
  int64_t run = 16 / SizeOf(registers->dtype);
  while (registers->shape.back() % run != 0) run /= 2;
  std::vector<int64_t> shape = {for_all ? slices : slices - 1};
  ExprList virtual_indices;
  for (const Var& v : vthreads) {
    shape.push_back(v->extent);
    virtual_indices.push_back(VarExpr(v));
  }
  shape.insert(shape.end(), registers->shape.begin(), registers->shape.end());
  shape.back() /= run;
  shape.insert(shape.end(), {threads, run});
  const BufferRef scratch =
      MakeBuffer(registers->name + ".slices", registers->dtype, Scope::kShared, std::move(shape));
  // body(element, its place in scratch) for every element, the runs as vectors.
  const auto nest = [&](const Expr& from, const std::function<Stmt(ExprList, ExprList)>& body) {
    Buffer runs = *registers;
    runs.shape.back() /= run;
    const Var lane = MakeVar("run", run);
    return ForEach(std::make_shared<const Buffer>(std::move(runs)), [&](const ExprList& at) {
      ExprList element = at, there = {from};
      element.back() = Simplify(at.back() * Int(run) + VarExpr(lane));
      there.insert(there.end(), virtual_indices.begin(), virtual_indices.end());
      there.insert(there.end(), at.begin(), at.end());
      there.push_back(Simplify(place));
      there.push_back(VarExpr(lane));
      return For(lane, run > 1 ? ForKind::kVector : ForKind::kUnrolled, body(element, there));
    });
  };
  Stmt leave = nest(Simplify(slice), [&](const ExprList& element, const ExprList& there) {
    return Store(scratch, there, Load(registers, element));
  });
  if (for_all) {
    // All threads combine the same in the same order, so that they agree to the last bit.
    const auto take = [&](const Expr& from, bool first) {
      return nest(from, [&](const ExprList& element, const ExprList& there) {
        const Expr value = Load(scratch, there);
        return Store(registers, element,
                     first ? value : Combine(combiner, Load(registers, element), value));
      });
    };
    const Var other = MakeVar("slice", slices - 1);
    const Expr next = slices > 2 ? Simplify(VarExpr(other) + Int(1)) : Int(1);
    const Stmt others = take(next, false);
    return Seq(
        {leave, take(Int(0), true), slices > 2 ? For(other, ForKind::kUnrolled, others) : others});
  }
  const Var other = MakeVar("slice", slices - 1);
  Stmt take = nest(VarExpr(other), [&](const ExprList& element, const ExprList& there) {
    return Store(registers, element,
                 Combine(combiner, Load(registers, element), Load(scratch, there)));
  });
  if (slices > 2) {
    take = For(other, ForKind::kUnrolled, take);
  } else {
    take = RewriteStmt(take, nullptr, [&](const Expr& e) {
      return Substitute(e, [&](const Var& v) { return v == other ? Int(0) : nullptr; });
    });
  }
  return Seq(
      {If(Simplify(slice < Int(slices - 1)), leave), If(Simplify(Int(slices - 1) <= slice), take)});
}

}  // namespace heddle::search_space
