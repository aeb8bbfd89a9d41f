#include "search_space/sketch/combine.h"

#include "absl/strings/str_join.h"

namespace heddle::search_space {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kWarp = 32;
constexpr int64_t kMostThreads = 256;
constexpr int64_t kUnrolledParts = 16;
constexpr int64_t kMostSlices = 8;

// The reduction in registers at `loop` of the root, its inputs in vectors; `slices` parts of the
// block share it.
void AppendSum(const Combination& c, const std::string& loop, int64_t vector, int64_t slices,
               std::vector<Step>& steps) {
  steps.push_back(SetScope{c.reduction, Scope::kLocal});
  steps.push_back(ComputeAt{c.reduction, c.root, loop});
  std::vector<std::string> order;
  std::string inner = c.loop;
  if (slices > 1) {
    steps.push_back(Split{c.reduction, inner, {slices, CeilDiv(c.parts, slices)}});
    steps.push_back(Bind{c.reduction, inner + ".1", BindTo::kSlice});
    order = {inner + ".0", inner + ".1"};
    inner += ".2";
  }
  if (CeilDiv(c.parts, slices) > kUnrolledParts) {
    steps.push_back(Split{c.reduction, inner, {kUnrolledParts}});
    order.push_back(inner + ".0");
    inner += ".1";
  }
  order.push_back(inner);
  order.insert(order.end(), c.axes.begin(), c.axes.end());
  steps.push_back(Reorder{c.reduction, order});
  steps.push_back(Unroll{c.reduction, inner});
  steps.push_back(CacheRead{c.partials, Scope::kLocal, c.reduction});
  const std::string fragment = c.partials + ".local";
  steps.push_back(ComputeAt{fragment, c.reduction, inner});
  if (vector > 1) steps.push_back(Vectorize{fragment, c.axes.back()});
}

}  // namespace

void AppendCombineKernel(const Combination& c, const Target& target, std::vector<Step>& steps) {
  int64_t total = 1;
  for (int64_t e : c.extents) total *= e;
  // Wide where that leaves every multiprocessor something to do.
  int64_t vector = 4;
  while (vector > 1 &&
         (c.extents.back() % vector != 0 || total / vector < kWarp * target.sm_count)) {
    vector /= 2;
  }
  int64_t threads = kMostThreads;
  while (threads > kWarp && total / (vector * threads) < target.sm_count) threads /= 2;
  // Loads of up to kUnrolledParts parts are under way together; more parts go to more threads.
  int64_t slices = 1;
  while (slices < kMostSlices && c.parts / slices > kUnrolledParts) slices *= 2;
  while (slices > 1 && threads * slices > kMostThreads && threads > kWarp) threads /= 2;
  std::vector<std::string> loops = c.root_axes;
  std::string lane;
  if (vector > 1) {
    steps.push_back(Split{c.root, loops.back(), {vector}});
    lane = loops.back() + ".1";
    loops.back() += ".0";
  }
  if (loops.size() > 1) steps.push_back(Fuse{c.root, loops});
  const std::string fused = absl::StrJoin(loops, "@");
  steps.push_back(Split{c.root, fused, {threads}});
  std::string thread = fused + ".1";
  if (slices > 1) {
    steps.push_back(Replicate{c.root, slices});
    std::vector<std::string> order = {"lane", thread};
    if (vector > 1) order.push_back(lane);
    steps.push_back(Reorder{c.root, order});
    steps.push_back(Fuse{c.root, {"lane", thread}});
    thread = "lane@" + thread;
  }
  steps.push_back(Bind{c.root, fused + ".0", BindTo::kBlock});
  steps.push_back(Bind{c.root, thread, BindTo::kThread});
  if (vector > 1) steps.push_back(Vectorize{c.root, lane});
  AppendSum(c, thread, vector, slices, steps);
}

}  // namespace heddle::search_space
