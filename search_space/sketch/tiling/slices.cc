// How many parts of a block share a tile's reduction: a small grid gets more warps so, a large one
// has enough.
#include "absl/strings/str_cat.h"
#include "search_space/ir/stmt.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostSlices = 8;

class SlicesDecision : public Decision {
 public:
  SlicesDecision(const TiledKernel& kernel, Holes& holes) : Decision(kernel) {
    const int64_t extent = kernel.reduce_axes[kernel.shared_axis].extent;
    slices_ = holes.Add("slice_k", PowersUpTo(std::min(kMostSlices, extent), kMostSlices),
                        kReductionGroup);
  }

  void Draw(const Drawing& d, Tile& tile) const override {
    std::vector<int64_t> valid;
    for (int64_t slices : d.Domain(slices_)) {
      tile.slices = slices;
      if (tile.Threads() <= kMostTileThreads && Limits(tile).ok()) valid.push_back(slices);
    }
    d[slices_] = valid.empty() ? 1 : valid[d.Below(valid.size())];
  }

  void Describe(Tile& tile) const override { tile.slices = tile[slices_]; }

  absl::Status Cost(const Tile& tile, Usage& usage) const override {
    // Through which they combine their results.
    usage.shared_bytes += (tile.slices - 1) * tile.TileThreads() * tile.Accumulators() *
                          SizeOf(kernel_.reduction.tensor->dtype);
    return Limits(tile);
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (tile.slices == 1) return;
    if (place == Place::kLoops) {
      nest.threads.insert(nest.threads.begin(), nest.w.Replicate(nest.stage, tile.slices));
    }
    if (place == Place::kTiles) nest.w.Bind(nest.slice, BindTo::kSlice);
  }

 private:
  absl::Status Limits(const Tile& tile) const {
    const int64_t slices = tile.slices;
    if (slices == 1) return absl::OkStatus();
    const bool large = tile.Blocks() > 4 * kernel_.target.sm_count && !kernel_.has_other_work;
    if (large || tile.reduced[kernel_.shared_axis] % slices != 0 ||
        tile.TileThreads() % kWarpThreads != 0) {
      return kernel_.Refuse(
          absl::StrCat(slices, " slices do not divide the work of ", tile.Blocks(), " blocks"));
    }
    return absl::OkStatus();
  }

  HoleId slices_;
};

}  // namespace

std::unique_ptr<Decision> MakeSlices(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<SlicesDecision>(kernel, holes);
}

}  // namespace heddle::search_space
