// One element, or a short vector of them, a thread: the plan for elementwise and window operators
// and, with every choice at its smallest, the default schedule of everything.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/sketch.h"

namespace heddle::search_space {
namespace {

class StreamingPlan : public KernelPlan {
 public:
  StreamingPlan(const ProgramShape& shape, const KernelShape& kernel, const Target& target)
      : target_(target) {
    const auto& stages = shape.schedule.stages();
    const ScheduledStage& root = stages[static_cast<size_t>(kernel.root)];
    root_ = root.name();
    for (const Var& axis : root.axes) {
      axes_.push_back(axis->name);
      extents_.push_back(axis->extent);
    }
    for (int s : kernel.stageable) inlined_.push_back(stages[static_cast<size_t>(s)].name());
    for (int r : kernel.reductions) {
      const ScheduledStage& reduction = stages[static_cast<size_t>(r)];
      reductions_.push_back(reduction.name());
      inner_reduce_.push_back(reduction.reduce_axes.back()->name);
      inner_extent_.push_back(reduction.reduce_axes.back()->extent);
    }
    holes_ = {
        {"threads", {}, 0}, {"vector", {1}, 0}, {"items", {1, 2, 4, 8}, 0}, {"unroll", {1}, 1}};
    for (int64_t t = 32; t <= std::min<int64_t>(1024, target.max_threads_per_block); t *= 2) {
      holes_[0].domain.push_back(t);
    }
    // Vectors that cross a row's end would be scalar accesses in the end.
    for (int64_t v = 2; v <= 4 && extents_.back() % v == 0; v *= 2) holes_[1].domain.push_back(v);
    if (!reductions_.empty()) holes_[3].domain = {1, 2, 4, 8};
  }

  std::vector<uint8_t> Default() const override {
    const auto& threads = holes_[0].domain;
    const auto preferred = std::find(threads.begin(), threads.end(), 256);
    const auto at = preferred == threads.end() ? threads.size() - 1
                                               : static_cast<size_t>(preferred - threads.begin());
    return {static_cast<uint8_t>(at), 0, 0, 0};
  }

  absl::Status Check(HoleValues v) const override {
    int64_t total = 1;
    for (int64_t e : extents_) total *= e;
    const int64_t per_block = v[0] * v[1] * v[2];
    if ((total + per_block - 1) / per_block > target_.max_grid) {
      return absl::ResourceExhaustedError(
          absl::StrCat(root_, ": more than ", target_.max_grid, " blocks"));
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    int64_t total = 1;
    for (int64_t e : extents_) total *= e;
    const int64_t per_block = v[0] * v[1] * v[2];
    const int64_t blocks = (total + per_block - 1) / per_block;
    return static_cast<double>(blocks * per_block) / static_cast<double>(total);
  }

  void AppendSteps(HoleValues v, std::vector<Step>& steps) const override {
    const int64_t threads = v[0], vector = v[1], items = v[2], unroll = v[3];
    for (const std::string& s : inlined_) steps.push_back(ComputeInline{s});
    std::vector<std::string> loops = axes_;
    std::string lane;
    if (vector > 1) {
      steps.push_back(Split{root_, loops.back(), {vector}});
      lane = loops.back() + ".1";
      loops.back() += ".0";
    }
    std::string fused = loops[0];
    if (loops.size() > 1) {
      steps.push_back(Fuse{root_, loops});
      for (size_t i = 1; i < loops.size(); ++i) fused += "@" + loops[i];
    }
    std::string thread = fused + ".1";
    if (items > 1) {
      // Threads of a block stay neighbours; each makes several strides.
      steps.push_back(Split{root_, fused, {items, threads}});
      thread = fused + ".2";
      steps.push_back(Reorder{root_, {fused + ".0", thread, fused + ".1"}});
      steps.push_back(Unroll{root_, fused + ".1"});
    } else {
      steps.push_back(Split{root_, fused, {threads}});
    }
    steps.push_back(Bind{root_, fused + ".0", BindTo::kBlock});
    steps.push_back(Bind{root_, thread, BindTo::kThread});
    if (vector > 1) steps.push_back(Vectorize{root_, lane});
    const std::string innermost = items > 1 ? fused + ".1" : thread;
    for (size_t r = 0; r < reductions_.size(); ++r) {
      steps.push_back(SetScope{reductions_[r], Scope::kLocal});
      steps.push_back(ComputeAt{reductions_[r], root_, innermost});
      if (unroll > 1 && inner_extent_[r] > 1) {
        const int64_t factor = std::min(unroll, inner_extent_[r]);
        steps.push_back(Split{reductions_[r], inner_reduce_[r], {factor}});
        steps.push_back(Unroll{reductions_[r], inner_reduce_[r] + ".1"});
      }
    }
  }

 private:
  const Target target_;
  std::string root_;
  std::vector<std::string> axes_;
  std::vector<int64_t> extents_;
  std::vector<std::string> inlined_, reductions_, inner_reduce_;
  std::vector<int64_t> inner_extent_;
};

class StreamingRule : public SketchRule {
 public:
  const char* name() const override { return "stream"; }
  bool Applies(const ProgramShape&, const KernelShape&, const Target&) const override {
    return true;
  }
  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    return std::make_unique<StreamingPlan>(shape, kernel, target);
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeStreamingRule() { return std::make_unique<StreamingRule>(); }

}  // namespace heddle::search_space
