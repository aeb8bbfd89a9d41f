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

#include "base/status.h"
#include "search_space/sketch/rules/rules.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

class TilingPlan : public KernelPlan {
 public:
  explicit TilingPlan(TiledKernel kernel)
      : kernel_(std::move(kernel)), all_(holes_), decisions_(kernel_, kDecisions, all_) {}

  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }

  absl::Status Check(HoleValues values) const override {
    const Tile tile = decisions_.TileOf(values);
    Usage usage;
    HEDDLE_RETURN_IF_ERROR(decisions_.Cost(tile, usage));
    return CheckUsage(kernel_, tile, usage);
  }

  double Waste(HoleValues values) const override { return decisions_.TileOf(values).Waste(); }

  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    KernelPlan::Draw(rng, values);
    Drawing drawing{rng, holes_, values};
    drawing.anywhere = drawing.Weighted({{1, 1}, {0, 7}}) != 0;
    Tile tile{.kernel = kernel_, .values = values};
    decisions_.Draw(drawing, tile);
  }

 protected:
  void Write(ScheduleWriter& w, HoleValues values) const override {
    Nest nest{.w = w, .stage = kernel_.root, .reduction = kernel_.reduction};
    decisions_.WriteKernel(decisions_.TileOf(values), nest);
  }

 private:
  const TiledKernel kernel_;
  Holes all_;
  const Decisions decisions_;
};

template <bool kReuses>
std::unique_ptr<KernelPlan> PlanTiling(const ProgramShape& shape, const KernelShape& kernel,
                                       const Target& target) {
  auto found = FindTiledKernel(shape, kernel, target);
  if (!found.has_value() || found->reuses != kReuses) return nullptr;
  return std::make_unique<TilingPlan>(*std::move(found));
}

}  // namespace

const SketchRule kTilingRule = {.name = "tile", .apply = PlanTiling<true>};
const SketchRule kColumnsRule = {
    .name = "tile", .apply = PlanTiling<false>, .is_last_resort = true};

}  // namespace heddle::search_space
