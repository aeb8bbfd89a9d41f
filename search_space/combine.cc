#include "search_space/combine.h"

#include "absl/strings/str_join.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kMostThreads = 256;
constexpr int64_t kUnrolledParts = 16;

// The reduction in registers at `loop` of the root, its inputs in vectors.
void AppendSum(const Combination& c, const std::string& loop, int64_t vector,
               std::vector<Step>& steps) {
  steps.push_back(SetScope{c.reduction, Scope::kLocal});
  steps.push_back(ComputeAt{c.reduction, c.root, loop});
  std::vector<std::string> order;
  std::string inner = c.loop;
  if (c.parts > kUnrolledParts) {
    steps.push_back(Split{c.reduction, c.loop, {kUnrolledParts}});
    order.push_back(c.loop + ".0");
    inner = c.loop + ".1";
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
  steps.push_back(Bind{c.root, fused + ".0", BindTo::kBlock});
  steps.push_back(Bind{c.root, fused + ".1", BindTo::kThread});
  if (vector > 1) steps.push_back(Vectorize{c.root, lane});
  AppendSum(c, fused + ".1", vector, steps);
}

}  // namespace heddle::search_space
