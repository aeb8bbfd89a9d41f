// One element, or a small tile of them, a thread: the plan for elementwise and window operators
// and, with every choice at its smallest, the default schedule of everything.
#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/sketch/rules/rules.h"

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
    if (IsVar(e, var)) run = 1;
    if (e->op == Op::kDiv && IsVar(e->args[0], var) && e->args[1]->op == Op::kInt) {
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

// Do all rows begin where a vector does, as one does, and those of a tensor that is padded?
bool BeginAtVectors(const Buffer& tensor) {
  const int64_t vector = ElementsOfAccess(tensor.dtype);
  for (size_t d = 0; d + 1 < tensor.shape.size(); ++d) {
    if (tensor.shape[d] > 1 && tensor.strides[d] % vector != 0) return false;
  }
  return true;
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
    const ScheduledStage& root = shape.stage(kernel.root);
    root_ = {root.tensor};
    for (const Var& axis : root.axes) extents_.push_back(axis->extent);
    for (int s : kernel.stageable) inlined_.push_back({shape.stage(s).tensor});
    for (int r : kernel.reductions) reductions_.push_back({shape.stage(r).tensor});
    // Vectors that cross a row's end would be scalar accesses in the end. Of a long row that begins
    // where a vector does that is the last vector alone.
    const DType type = root.tensor->dtype;
    const bool is_aligned = extents_.back() >= kLongBesideVector && BeginAtVectors(*root.tensor);
    std::vector<int64_t> vectors =
        AccessWidths(is_aligned ? ElementsOfAccess(type) : extents_.back(), type);
    KeepMultiples(SharedRun(root, extents_.size() - 1), vectors);
    int64_t least = vectors[0];  // elements of a thread
    threads_ =
        AddHole("threads", Doubled(32, std::min<int64_t>(1024, target.max_threads_per_block)), 0);
    vector_ = AddHole("vector", std::move(vectors), 0);
    items_ = AddHole("items", {1, 2, 4, 8}, 0);
    unroll_ = AddHole("unroll", Doubled(1, reductions_.empty() ? 1 : 8), 1);
    for (size_t a = 0; a + 1 < extents_.size(); ++a) {
      std::vector<int64_t> tiles = Doubled(1, std::min<int64_t>(4, extents_[a]));
      if (extents_[a] <= kMaxWhole && extents_[a] > tiles.back()) tiles.push_back(extents_[a]);
      std::vector<int64_t> whole = tiles;
      KeepMultiples(SharedRun(root, a), whole);
      if (least * whole[0] <= kMaxThreadElements) tiles = std::move(whole);
      least *= tiles[0];
      tiles_.push_back(AddHole(root.axes[a]->name + ".tile", tiles, 0));
    }
  }

  std::vector<uint8_t> Default() const override {
    const auto& threads = holes_[threads_].domain;
    const auto preferred = std::find(threads.begin(), threads.end(), 256);
    const auto at = preferred == threads.end() ? threads.size() - 1
                                               : static_cast<size_t>(preferred - threads.begin());
    std::vector<uint8_t> choices(holes_.size(), 0);
    choices[threads_] = static_cast<uint8_t>(at);
    return choices;
  }

  // Mostly points whose threads fill the device, as far as there is work for them.
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    static constexpr int kAttempts = 16;
    const bool anywhere = std::uniform_int_distribution<int>(0, 7)(rng) == 0;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      KernelPlan::Draw(rng, values);
      if (anywhere || Blocks(values) * values[threads_] >= target_.sm_count * kBusyThreads) return;
    }
  }

  absl::Status Check(HoleValues v) const override {
    if (ThreadElements(v) > kMaxThreadElements) {
      return absl::ResourceExhaustedError(absl::StrCat(root_.tensor->name, ": more than ",
                                                       kMaxThreadElements, " elements a thread"));
    }
    if (Blocks(v) > target_.max_grid) {
      return absl::ResourceExhaustedError(
          absl::StrCat(root_.tensor->name, ": more than ", target_.max_grid, " blocks"));
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    double total = 1;
    for (int64_t e : extents_) total *= static_cast<double>(e);
    return static_cast<double>(Blocks(v) * v[threads_] * ThreadElements(v)) / total;
  }

  void Write(ScheduleWriter& w, HoleValues v) const override {
    for (const StageRef& s : inlined_) w.ComputeInline(s);
    LoopList loops = w.Loops(root_), tiles, lanes;
    for (size_t a = 0; a + 1 < loops.size(); ++a) {
      if (Tile(v, a) == 1) continue;
      const auto [outer, tile] = w.Split(loops[a], Tile(v, a));
      loops[a] = outer;
      tiles.push_back(tile);
    }
    if (v[vector_] > 1) {
      const auto [outer, lane] = w.Split(loops.back(), v[vector_]);
      loops.back() = outer;
      lanes.push_back(lane);
    }
    if (!tiles.empty()) {
      w.Reorder(Join({loops, tiles, lanes}));
      for (const LoopRef& tile : tiles) w.Unroll(tile);
    }
    const LoopRef fused = w.Fuse(loops);
    LoopRef block, thread, innermost;
    if (v[items_] > 1) {
      // Threads of a block stay neighbours; each makes several strides.
      const auto parts = w.Split(fused, v[items_], v[threads_]);
      block = parts[0], innermost = parts[1], thread = parts[2];
      w.Reorder({block, thread, innermost});
      w.Unroll(innermost);
    } else {
      const auto parts = w.Split(fused, v[threads_]);
      block = parts[0], innermost = thread = parts[1];
    }
    w.Bind(block, BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    if (!lanes.empty()) w.Vectorize(lanes[0]);
    for (const StageRef& reduction : reductions_) {
      w.SetScope(reduction, Scope::kLocal);
      w.ComputeAt(reduction, tiles.empty() ? innermost : tiles.back());
      const LoopRef last = w.ReduceLoops(reduction).back();
      if (v[unroll_] == 1 || last.var->extent == 1) continue;
      w.Unroll(w.Split(last, std::min(v[unroll_], last.var->extent))[1]);
    }
  }

 private:
  int64_t Tile(HoleValues v, size_t axis) const {
    return axis < tiles_.size() ? v[tiles_[axis]] : v[vector_];
  }
  int64_t ThreadElements(HoleValues v) const {
    int64_t elements = v[items_];
    for (size_t a = 0; a < extents_.size(); ++a) elements *= Tile(v, a);
    return elements;
  }
  int64_t Blocks(HoleValues v) const {
    int64_t tiles = 1;
    for (size_t a = 0; a < extents_.size(); ++a) tiles *= CeilDiv(extents_[a], Tile(v, a));
    return CeilDiv(tiles, v[threads_] * v[items_]);
  }

  const Target target_;
  StageRef root_;
  std::vector<int64_t> extents_;
  std::vector<StageRef> inlined_, reductions_;
  HoleId threads_, vector_, items_, unroll_;
  std::vector<HoleId> tiles_;  // of each axis but the last
};

std::unique_ptr<KernelPlan> PlanStreaming(const ProgramShape& shape, const KernelShape& kernel,
                                          const Target& target) {
  return std::make_unique<StreamingPlan>(shape, kernel, target);
}

}  // namespace

const SketchRule kStreamingRule = {.name = "stream", .apply = PlanStreaming, .is_fallback = true};

}  // namespace heddle::search_space
