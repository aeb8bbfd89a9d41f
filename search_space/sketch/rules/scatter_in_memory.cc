// Reductions of scattered terms of many places, more perhaps than a block can hold, such as
// gradients of embeddings and sums over edges to the nodes of a graph: elements lie in the device's
// memory, to which the threads of all blocks add each term where it belongs. What is made of the
// reduction is a kernel behind that, unless it only repeats it.
#include "search_space/schedule/threads/scatter_in_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

// Updates of an element wait for one another: of few each has many.
constexpr int64_t kFewestElements = 256;
// What a block does that looks at each term twice, since it has half of the places, is no faster.
constexpr double kDistance = 1.5;

struct ScatteredInMemory {
  StageRef root, reduction;
  std::vector<StageRef> inlined;
  int64_t terms = 1;
  int64_t columns = 1;  // elements that a term has at its places
  int64_t widest = 1;   // of these, that are updated at once
};

class ScatterInMemoryPlan : public KernelPlan {
 public:
  ScatterInMemoryPlan(ScatteredInMemory scattered, const Target& target)
      : scattered_(std::move(scattered)), target_(target) {}

  std::vector<uint8_t> Default() const override {
    std::vector<uint8_t> choices(holes_.size(), 0);
    if (holes_[threads_].domain.size() > 1) choices[threads_] = 1;
    choices[vector_] = static_cast<uint8_t>(holes_[vector_].domain.size() - 1);
    const auto values = [&] {
      std::vector<int64_t> all;
      for (size_t h = 0; h < holes_.size(); ++h) all.push_back(holes_[h].domain[choices[h]]);
      return all;
    };
    while (choices[blocks_] + size_t{1} < holes_[blocks_].domain.size()) {
      ++choices[blocks_];
      if (Check(values()).ok()) continue;
      --choices[blocks_];
      break;
    }
    return choices;
  }

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](absl::string_view why) { return Refusal(scattered_.root, why); };
    const int64_t threads = Blocks(v) * v[threads_];
    const int64_t updates = scattered_.terms * (scattered_.columns / v[vector_]);
    if (v[blocks_] > 1 && threads * v[unroll_] >= 2 * updates) {
      return refuse(absl::StrCat(threads, " threads for ", updates, " updates"));
    }
    if (v[unroll_] > 1 && threads * v[unroll_] > updates) return refuse("nothing to unroll");
    return absl::OkStatus();
  }

  // Each term is looked at once, and its place is updated farther away than in a block's memory.
  double Waste(HoleValues /*values*/) const override { return kDistance; }

 protected:
  void Write(ScheduleWriter& w, HoleValues v) const override {
    for (const StageRef& s : scattered_.inlined) w.ComputeInline(s);
    w.Fuse(w.ReduceLoops(scattered_.reduction));
    w.ScatterInMemory(scattered_.reduction, Blocks(v), v[threads_], v[unroll_], v[vector_]);
    WriteRoot(w);
  }

 private:
  int64_t Blocks(HoleValues v) const { return v[blocks_] * target_.sm_count; }

  // A short vector of elements a thread.
  void WriteRoot(ScheduleWriter& w) const {
    const int64_t threads = std::min<int64_t>(256, target_.max_threads_per_block);
    const Buffer& root = *scattered_.root.tensor;
    LoopList loops = w.Loops(scattered_.root);
    LoopRef lane;
    const int64_t vector = AccessWidths(root.shape.back(), root.dtype).back();
    if (vector > 1) {
      const auto [outer, inner] = w.Split(loops.back(), vector);
      loops.back() = outer;
      lane = inner;
    }
    const auto [block, thread] = w.Split(w.Fuse(loops), threads);
    w.Bind(block, BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    if (vector > 1) w.Vectorize(lane);
  }

  const ScatteredInMemory scattered_;
  const Target target_;
  const HoleId threads_ = AddHole("threads",
                                  Doubled(std::min<int64_t>(128, target_.max_threads_per_block),
                                          std::min<int64_t>(512, target_.max_threads_per_block)),
                                  0);
  const HoleId blocks_ = AddHole("blocks", {1, 2, 4, 8, 16, 32}, 0);  // a multiprocessor
  const HoleId unroll_ = AddHole("unroll", {1, 2, 4, 8}, 0);
  const HoleId vector_ = AddHole("vector", Doubled(1, scattered_.widest), 0);
};

std::unique_ptr<KernelPlan> PlanScatterInMemory(const ProgramShape& shape,
                                                const KernelShape& kernel, const Target& target) {
  if (kernel.fused || kernel.reductions.size() != 1) return nullptr;
  ScatteredInMemory scattered{.root = {shape.stage(kernel.root).tensor},
                              .reduction = {shape.stage(kernel.reductions[0]).tensor}};
  for (int s : kernel.stageable) scattered.inlined.push_back({shape.stage(s).tensor});
  // Where a term belongs may depend on what is inlined.
  ScheduleWriter w(shape.schedule);
  const absl::Status inlined = ScheduleWriter::Try([&] {
    for (const StageRef& s : scattered.inlined) w.ComputeInline(s);
  });
  if (!inlined.ok()) return nullptr;
  const ScheduledStage& stage =
      w.schedule().stage(w.schedule().FindStage(scattered.reduction.tensor.get()));
  const std::vector<ScatteredTerms> terms = ScatteredTermsOf(stage);
  if (terms.empty() || ExtentOf(stage.axes) < kFewestElements) return nullptr;
  scattered.terms = ExtentOf(stage.reduce_axes);
  for (size_t i = 0; i < stage.axes.size(); ++i) {
    if (!terms[0].HasKey(i)) scattered.columns *= stage.axes[i]->extent;
  }
  scattered.widest = UpdatesVectors(target) ? WidestUpdate(w.schedule(), stage) : 1;
  auto plan = std::make_unique<ScatterInMemoryPlan>(std::move(scattered), target);
  if (!plan->IsWritable(shape.schedule)) return nullptr;
  return plan;
}

}  // namespace

const SketchRule kScatterInMemoryRule = {.name = "scatter_in_memory", .apply = PlanScatterInMemory};

}  // namespace heddle::search_space
