// Multi-level tiling of a reduction, whatever its operands.
//
// Every axis of the result is split into block, virtual thread, warp, lane and register tile, the
// reduction into an outer loop that fetches tiles of the operands into shared memory and an inner
// one that reads fragments of them into registers. The structure is the one that fast float32
// kernels on NVIDIA GPUs share (docs/architecture.md); what differs between them is decided in
// tiling/, a file a decision. Where nothing is reused, as in a sum of columns, tiles are read by
// many copies that are under way at once, and blocks share the reduction.
#include <algorithm>
#include <utility>

#include "search_space/sketch/rules.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kOtherRegisters = 24;  // addresses, loop counters, temporaries

class TilingPlan : public KernelPlan {
 public:
  explicit TilingPlan(TiledKernel kernel) : kernel_(std::move(kernel)) {
    Holes holes(holes_);
    for (MakeDecision* make : kDecisions) decisions_.push_back(make(kernel_, holes));
  }

  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }

  absl::Status Check(HoleValues values) const override {
    const Tile tile = TileOf(values);
    Usage usage{.registers = kOtherRegisters};
    for (const auto& d : decisions_) {
      if (absl::Status s = d->Cost(tile, usage); !s.ok()) return s;
    }
    const Target& target = kernel_.target;
    if (usage.shared_bytes > target.max_shared_bytes_per_block) {
      return kernel_.TooMany(usage.shared_bytes, "shared bytes", target.max_shared_bytes_per_block);
    }
    const int64_t threads = CeilDiv(tile.Threads(), 32) * 32 * tile.blocks_per_sm;
    const int64_t most =
        std::min(target.max_registers_per_thread, target.registers_per_sm / threads);
    if (usage.registers > most) return kernel_.TooMany(usage.registers, "registers", most);
    return absl::OkStatus();
  }

  double Waste(HoleValues values) const override { return TileOf(values).Waste(); }

  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    KernelPlan::Draw(rng, values);
    Drawing drawing{rng, holes_, values};
    drawing.anywhere = drawing.Weighted({{1, 1}, {0, 7}}) != 0;
    Tile tile{.kernel = kernel_, .values = values};
    for (const auto& d : decisions_) {
      d->Draw(drawing, tile);
      d->Describe(tile);
    }
    for (const auto& d : decisions_) d->Settle(drawing, tile);
  }

 protected:
  void Write(ScheduleWriter& w, HoleValues values) const override {
    const Tile tile = TileOf(values);
    Nest nest{.w = w, .stage = kernel_.root, .reduction = kernel_.reduction};
    const auto decide = [&](Place place) {
      for (const auto& d : decisions_) d->Write(place, tile, nest);
    };
    decide(Place::kReduction);
    decide(Place::kLoops);
    w.Reorder(Join({nest.blocks, nest.vthreads, nest.threads, nest.elements}));
    w.Bind(w.Fuse(nest.blocks), BindTo::kBlock);
    decide(Place::kGrid);
    for (const LoopRef& loop : nest.vthreads) w.Bind(loop, BindTo::kVthread);
    nest.thread = w.Fuse(nest.threads);
    w.Bind(nest.thread, BindTo::kThread);
    decide(Place::kKernel);
    w.SetScope(nest.reduction, Scope::kLocal);
    w.ComputeAt(nest.reduction, nest.thread);
    decide(Place::kTiles);
    decide(Place::kInner);
    decide(Place::kOperands);
    decide(Place::kPipeline);
  }

 private:
  Tile TileOf(HoleValues values) const {
    Tile tile{.kernel = kernel_, .values = values};
    for (const auto& d : decisions_) d->Describe(tile);
    return tile;
  }

  const TiledKernel kernel_;
  std::vector<std::unique_ptr<const Decision>> decisions_;
};

class TilingRule : public SketchRule {
 public:
  explicit TilingRule(bool reuses) : reuses_(reuses) {}
  const char* name() const override { return "tile"; }
  bool is_last_resort() const override { return !reuses_; }
  bool Applies(const ProgramShape& shape, const KernelShape& kernel,
               const Target& target) const override {
    const auto found = FindTiledKernel(shape, kernel, target);
    return found.has_value() && found->reuses == reuses_;
  }
  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    return std::make_unique<TilingPlan>(*FindTiledKernel(shape, kernel, target));
  }

 private:
  const bool reuses_;
};

}  // namespace

std::unique_ptr<SketchRule> MakeTilingRule() { return std::make_unique<TilingRule>(true); }
std::unique_ptr<SketchRule> MakeColumnsRule() { return std::make_unique<TilingRule>(false); }

}  // namespace heddle::search_space
