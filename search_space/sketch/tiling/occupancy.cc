// How many blocks a multiprocessor has to have room for.
#include <algorithm>

#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

class OccupancyDecision : public Decision {
 public:
  OccupancyDecision(const TiledKernel& kernel, Holes& holes) : Decision(kernel) {
    const bool can_ask = kernel.target.api == Api::kCuda;
    blocks_ = holes.Add("min_blocks",
                        can_ask ? std::vector<int64_t>{0, 1, 2, 3, 4} : std::vector<int64_t>{0},
                        kKernelGroup);
  }

  void Describe(Tile& tile) const override {
    tile.blocks_per_sm = std::max<int64_t>(1, tile[blocks_]);
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place != Place::kKernel || tile[blocks_] == 0) return;
    nest.w.LaunchBounds(nest.stage, tile[blocks_]);
  }

 private:
  HoleId blocks_;
};

}  // namespace

std::unique_ptr<Decision> MakeOccupancy(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<OccupancyDecision>(kernel, holes);
}

}  // namespace heddle::search_space
