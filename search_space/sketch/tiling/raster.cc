// The order of the blocks: in groups of rows, so that those that run together share more of L2.
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

class RasterDecision : public Decision {
 public:
  RasterDecision(const TiledKernel& kernel, Holes& holes)
      : Decision(kernel), rows_(holes.Add("block_swizzle", {1, 2, 4, 8}, kKernelGroup)) {}

  void Settle(const Drawing& d, const Tile& tile) const override {
    if (tile.parts > 1) d[rows_] = 1;
  }

  absl::Status Cost(const Tile& tile, Usage&) const override {
    if (tile[rows_] == 1) return absl::OkStatus();
    const int64_t rows = CeilDiv(kernel_.axes[0].extent, tile.axes[0].of_block());
    const bool grid = tile.axes.size() > 1 && tile.parts == 1 && rows % tile[rows_] == 0;
    if (grid) return absl::OkStatus();
    return kernel_.TooMany(tile[rows_], "rows of blocks in a group", 1);
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place == Place::kGrid && tile[rows_] > 1) nest.w.BlockSwizzle(nest.stage, tile[rows_]);
  }

 private:
  HoleId rows_;
};

}  // namespace

std::unique_ptr<Decision> MakeRaster(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<RasterDecision>(kernel, holes);
}

}  // namespace heddle::search_space
