#include "search_space/sketch/kernels/combine.h"

#include "search_space/ir/stmt.h"
#include "search_space/sketch/kernels/kernel_plan.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostThreads = 256;
constexpr int64_t kUnrolledParts = 16;
constexpr int64_t kMostSlices = 8;

// The reduction in registers at `thread` of the root, its inputs in vectors; `slices` parts of the
// block share it.
void WriteSum(ScheduleWriter& w, const Combination& c, const LoopRef& thread, int64_t vector,
              int64_t slices) {
  w.SetScope(c.reduction, Scope::kLocal);
  w.ComputeAt(c.reduction, thread);
  LoopList order;
  LoopRef inner = w.ReduceLoops(c.reduction)[0];
  const LoopList data = w.DataLoops(c.reduction);
  if (slices > 1) {
    const auto parts = w.Split(inner, slices, CeilDiv(c.parts, slices));
    w.Bind(parts[1], BindTo::kSlice);
    order = {parts[0], parts[1]};
    inner = parts[2];
  }
  if (CeilDiv(c.parts, slices) > kUnrolledParts) {
    const auto parts = w.Split(inner, kUnrolledParts);
    order.push_back(parts[0]);
    inner = parts[1];
  }
  w.Reorder(Join({order, {inner}, data}));
  w.Unroll(inner);
  for (const StageRef& partials : c.partials) {
    const StageRef fragment = w.CacheRead(partials.tensor, Scope::kLocal, c.reduction);
    w.ComputeAt(fragment, inner);
    if (vector > 1) w.Vectorize(w.Loops(fragment).back());
  }
}

}  // namespace

void WriteCombineKernel(ScheduleWriter& w, const Combination& c, const Target& target) {
  int64_t total = 1;
  for (int64_t e : c.root.tensor->shape) total *= e;
  // Wide where that leaves every multiprocessor something to do.
  int64_t vector = ElementsOfAccess(c.partials[0].tensor->dtype);
  while (vector > 1 && (c.root.tensor->shape.back() % vector != 0 ||
                        total / vector < kWarpThreads * target.sm_count)) {
    vector /= 2;
  }
  int64_t threads = kMostThreads;
  while (threads > kWarpThreads && total / (vector * threads) < target.sm_count) threads /= 2;
  // Loads of up to kUnrolledParts parts are under way together; more parts go to more threads.
  int64_t slices = 1;
  while (slices < kMostSlices && c.parts / slices > kUnrolledParts) slices *= 2;
  while (slices > 1 && threads * slices > kMostThreads && threads > kWarpThreads) threads /= 2;
  LoopList loops = w.Loops(c.root), lanes;
  if (vector > 1) {
    const auto parts = w.Split(loops.back(), vector);
    loops.back() = parts[0];
    lanes.push_back(parts[1]);
  }
  const auto parts = w.Split(w.Fuse(loops), threads);
  LoopRef thread = parts[1];
  if (slices > 1) {
    const LoopRef slice = w.Replicate(c.root, slices);
    w.Reorder(Join({{slice, thread}, lanes}));
    thread = w.Fuse({slice, thread});
  }
  w.Bind(parts[0], BindTo::kBlock);
  w.Bind(thread, BindTo::kThread);
  if (!lanes.empty()) w.Vectorize(lanes[0]);
  WriteSum(w, c, thread, vector, slices);
}

}  // namespace heddle::search_space
