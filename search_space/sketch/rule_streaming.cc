// One element, or a small tile of them, a thread: the plan for elementwise and window operators
// and, with every choice at its smallest, the default schedule of everything.
#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/sketch/sketch.h"

namespace heddle::search_space {
namespace {

// Elements a thread computes at most: all of them are unrolled.
constexpr int64_t kMaxThreadElements = 32;

// Threads that keep a multiprocessor's memory requests flowing.
constexpr int64_t kBusyThreads = 512;

// Longest axis of which one thread may compute all elements.
constexpr int64_t kMaxWhole = 16;

// Neighbours along an axis that read the same elements: all when no index mentions the axis, q when
// every mention is axis / q.
int64_t SharedRun(const ScheduledStage& stage, size_t axis) {
  const Var& var = stage.axes[axis];
  int64_t run = 0;
  std::function<void(const Expr&)> scan = [&](const Expr& e) {
    if (e->op == Op::kVar && e->var == var) run = 1;
    if (e->op == Op::kDiv && e->args[0]->op == Op::kVar && e->args[0]->var == var &&
        e->args[1]->op == Op::kInt) {
      run = std::gcd(run, e->args[1]->int_value);
      return;
    }
    for (const Expr& arg : e->args) scan(arg);
  };
  Visit(stage.body, [&](const Expr& node) {
    if (node->op == Op::kLoad) {
      for (const Expr& index : node->args) scan(index);
    }
  });
  return run == 0 ? var->extent : run;
}

// Leaves the values that make whole runs, where there are any.
void KeepMultiples(int64_t run, std::vector<int64_t>& tiles) {
  std::vector<int64_t> whole;
  std::copy_if(tiles.begin(), tiles.end(), std::back_inserter(whole),
               [&](int64_t t) { return t % run == 0; });
  if (!whole.empty()) tiles = std::move(whole);
}

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
    KeepMultiples(SharedRun(root, axes_.size() - 1), holes_[1].domain);
    if (!reductions_.empty()) holes_[3].domain = {1, 2, 4, 8};
    for (size_t a = 0; a + 1 < axes_.size(); ++a) {
      std::vector<int64_t> tiles = {1};
      for (int64_t t = 2; t <= std::min<int64_t>(4, extents_[a]); t *= 2) tiles.push_back(t);
      if (extents_[a] <= kMaxWhole && extents_[a] > tiles.back()) tiles.push_back(extents_[a]);
      KeepMultiples(SharedRun(root, a), tiles);
      holes_.push_back({axes_[a] + ".tile", tiles, 0});
    }
  }

  std::vector<uint8_t> Default() const override {
    const auto& threads = holes_[0].domain;
    const auto preferred = std::find(threads.begin(), threads.end(), 256);
    const auto at = preferred == threads.end() ? threads.size() - 1
                                               : static_cast<size_t>(preferred - threads.begin());
    std::vector<uint8_t> choices(holes_.size(), 0);
    choices[0] = static_cast<uint8_t>(at);
    return choices;
  }

  // Mostly points whose threads fill the device, as far as there is work for them.
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    static constexpr int kAttempts = 16;
    const bool anywhere = std::uniform_int_distribution<int>(0, 7)(rng) == 0;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      KernelPlan::Draw(rng, values);
      if (anywhere || Blocks(values) * values[0] >= target_.sm_count * kBusyThreads) return;
    }
  }

  absl::Status Check(HoleValues v) const override {
    if (ThreadElements(v) > kMaxThreadElements) {
      return absl::ResourceExhaustedError(
          absl::StrCat(root_, ": more than ", kMaxThreadElements, " elements a thread"));
    }
    if (Blocks(v) > target_.max_grid) {
      return absl::ResourceExhaustedError(
          absl::StrCat(root_, ": more than ", target_.max_grid, " blocks"));
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    double total = 1;
    for (int64_t e : extents_) total *= static_cast<double>(e);
    return static_cast<double>(Blocks(v) * v[0] * ThreadElements(v)) / total;
  }

  void AppendSteps(HoleValues v, std::vector<Step>& steps) const override {
    const int64_t threads = v[0], vector = v[1], items = v[2], unroll = v[3];
    for (const std::string& s : inlined_) steps.push_back(ComputeInline{s});
    std::vector<std::string> loops = axes_, tiles;
    for (size_t a = 0; a + 1 < axes_.size(); ++a) {
      if (Tile(v, a) == 1) continue;
      steps.push_back(Split{root_, axes_[a], {Tile(v, a)}});
      tiles.push_back(axes_[a] + ".1");
      loops[a] += ".0";
    }
    std::string lane;
    if (vector > 1) {
      steps.push_back(Split{root_, loops.back(), {vector}});
      lane = loops.back() + ".1";
      loops.back() += ".0";
    }
    if (!tiles.empty()) {
      std::vector<std::string> order = loops;
      order.insert(order.end(), tiles.begin(), tiles.end());
      if (vector > 1) order.push_back(lane);
      steps.push_back(Reorder{root_, order});
      for (const std::string& tile : tiles) steps.push_back(Unroll{root_, tile});
    }
    const std::string fused = absl::StrJoin(loops, "@");
    if (loops.size() > 1) steps.push_back(Fuse{root_, loops});
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
    const std::string innermost = !tiles.empty() ? tiles.back() : items > 1 ? fused + ".1" : thread;
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
  static constexpr size_t kFirstTile = 4;

  int64_t Tile(HoleValues v, size_t axis) const {
    return axis + 1 < axes_.size() ? v[kFirstTile + axis] : v[1];
  }
  int64_t ThreadElements(HoleValues v) const {
    int64_t elements = v[2];
    for (size_t a = 0; a < axes_.size(); ++a) elements *= Tile(v, a);
    return elements;
  }
  int64_t Blocks(HoleValues v) const {
    int64_t tiles = 1;
    for (size_t a = 0; a < axes_.size(); ++a) tiles *= (extents_[a] + Tile(v, a) - 1) / Tile(v, a);
    const int64_t per_block = v[0] * v[2];
    return (tiles + per_block - 1) / per_block;
  }

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
