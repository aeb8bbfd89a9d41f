// Programs of sites (patterns/sites.h): a thread computes all that there is of one site, or of
// neighbours in memory, and keeps it in registers.
#include "search_space/sketch/patterns/sites.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

class SitesPlan : public KernelPlan {
 public:
  SitesPlan(Sites sites, const Target& target) : sites_(std::move(sites)), target_(target) {}

  std::vector<uint8_t> Default() const override {
    std::vector<uint8_t> choices(holes_.size(), 0);
    choices[threads_] = 2;
    return choices;
  }

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](absl::string_view why) { return Refusal(sites_.root, why); };
    const int64_t kept =
        (sites_.elements + (v[inputs_] != 0 ? sites_.read_elements : 0)) * v[width_];
    if (kept > kMostKept) return refuse(absl::StrCat(kept, " elements a thread"));
    if (sites_.nodes * v[width_] > kMostSiteNodes) {
      return refuse(absl::StrCat(v[width_], " sites a thread of ", sites_.nodes, " operations"));
    }
    const int64_t blocks = CeilDiv(Count() / v[width_], v[threads_]);
    if (blocks > target_.max_grid) return refuse(absl::StrCat(blocks, " blocks"));
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    const int64_t threads = Count() / v[width_];
    return static_cast<double>(RoundUp(threads, v[threads_])) / static_cast<double>(threads);
  }

  void Write(ScheduleWriter& w, HoleValues v) const override;

 private:
  static constexpr int64_t kMostKept = 200;

  int64_t Count() const {
    int64_t count = 1;
    for (size_t a : sites_.sites) count *= sites_.root.tensor->shape[a];
    return count;
  }

  const Sites sites_;
  const Target target_;
  const HoleId threads_ =
      AddHole("threads", Doubled(32, std::min<int64_t>(512, target_.max_threads_per_block)), 0);
  // Of a thread's sites.
  const HoleId width_ = AddHole("vector", Doubled(1, sites_.width), 0);
  // 1: inputs are read at once, in accesses as wide as they can be.
  const HoleId inputs_ = AddHole("inputs", OnlyIf(!sites_.inputs.empty()), 0);
};

void SitesPlan::Write(ScheduleWriter& w, HoleValues v) const {
  for (const StageRef& s : sites_.inlined) w.ComputeInline(s);
  std::vector<StageRef> held = sites_.held;
  if (!sites_.copies) held.push_back(w.CacheWrite(sites_.root, Scope::kLocal));
  const LoopList axes = w.Loops(sites_.root);
  LoopList outer, inner;
  for (size_t a : sites_.sites) outer.push_back(axes[a]);
  for (size_t a : sites_.own) inner.push_back(axes[a]);
  int64_t vector = 1;
  if (v[width_] > 1) {
    const auto [groups, lane] = w.Split(outer.back(), v[width_]);
    outer.back() = groups;
    inner.push_back(lane);
    vector = v[width_];
  } else if (!sites_.own.empty() && sites_.own.back() + 1 == axes.size()) {
    vector = AccessWidths(inner.back().var->extent, sites_.root.tensor->dtype).back();
    if (vector > 1 && vector < inner.back().var->extent) {
      const auto [groups, lane] = w.Split(inner.back(), vector);
      inner.back() = groups;
      inner.push_back(lane);
    }
  }
  w.Reorder(Join({outer, inner}));
  const auto [block, thread] = w.Split(w.Fuse(outer), v[threads_]);
  w.Bind(block, BindTo::kBlock);
  w.Bind(thread, BindTo::kThread);
  for (size_t l = 0; l < inner.size(); ++l) {
    if (vector > 1 && l + 1 == inner.size()) {
      w.Vectorize(inner[l]);
    } else {
      w.Unroll(inner[l]);
    }
  }
  for (auto s = held.rbegin(); s != held.rend(); ++s) {
    if (w.schedule().stage(w.schedule().FindStage(s->tensor.get())).scope != Scope::kLocal) {
      w.SetScope(*s, Scope::kLocal);
    }
    w.ComputeAt(*s, thread);
    for (const LoopRef& loop : w.Loops(*s)) {
      if (loop.var->extent > 1) w.Unroll(loop);
    }
  }
  if (v[inputs_] == 0) return;
  for (const SiteInput& in : sites_.inputs) {
    const StageRef copy = w.CacheReadForKernel(in.tensor, Scope::kLocal, sites_.root);
    w.ComputeAt(copy, thread);
    LoopList loops = w.Loops(copy);
    const int64_t extent = loops.back().var->extent;
    const int64_t wide = AccessWidths(extent, in.tensor->dtype).back();
    LoopRef lane = loops.back();
    loops.pop_back();
    if (wide < extent) {
      const auto [groups, last] = w.Split(lane, wide);
      loops.push_back(groups);
      lane = last;
    }
    for (const LoopRef& loop : loops) {
      if (loop.var->extent > 1) w.Unroll(loop);
    }
    if (wide > 1) w.Vectorize(lane);
  }
}

std::unique_ptr<KernelPlan> PlanSites(const ProgramShape& shape, const KernelShape& kernel,
                                      const Target& target) {
  auto sites = FindSites(shape, kernel);
  if (!sites.has_value()) return nullptr;
  auto plan = std::make_unique<SitesPlan>(*std::move(sites), target);
  return plan->IsWritable(shape.schedule) ? std::move(plan) : nullptr;
}

}  // namespace

const SketchRule kSitesRule = {.name = "sites", .apply = PlanSites, .takes_fused_kernels = true};

}  // namespace heddle::search_space
