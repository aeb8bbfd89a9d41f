// How much of each reduction axis a block has in shared memory at a time.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

// Terms of a reduction that may be a single tile.
constexpr int64_t kMostInOneTile = 256;

// Terms of a window, of which several channels are mostly fetched whole. Of a larger one few
// channels are, and along all its axes but the last one element.
constexpr int64_t kMostInWindow = 64;

// Of an axis in shared memory at a time: a window whole or an element, and of what is longer parts.
std::vector<int64_t> Parts(const TiledAxis& axis, bool beside_window) {
  if (!axis.is_window() && !beside_window) return {8, 4, 16, 32};
  if (!axis.is_window()) return {8, 4, 16, 32, 2, 1};
  std::vector<int64_t> parts = {axis.extent};
  if (axis.extent > 1) parts.push_back(1);
  for (int64_t part : {8, 4, 16}) {
    if (axis.extent > 8 && part < axis.extent) parts.push_back(part);
  }
  return parts;
}

class ReductionDecision : public Decision {
 public:
  ReductionDecision(const TiledKernel& kernel, Holes& holes, bool may_be_one_tile)
      : Decision(kernel) {
    const bool moves = std::any_of(kernel.reduce_axes.begin(), kernel.reduce_axes.end(),
                                   [](const TiledAxis& axis) { return axis.moves; });
    for (const TiledAxis& axis : kernel.reduce_axes) {
      inner_.push_back(holes.Add(axis.name + ".inner", Parts(axis, moves), kReductionGroup));
      if (moves && axis.is_window()) window_ *= axis.extent;
    }
    if (!may_be_one_tile) return;
    int64_t terms = 1;
    for (const TiledAxis& axis : kernel.reduce_axes) terms *= axis.extent;
    const bool is_short = terms <= kMostInOneTile;
    one_tile_ =
        holes.Add("one_tile", is_short ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0},
                  kReductionGroup);
  }

  void Draw(const Drawing& d, Tile&) const override {
    if (d.anywhere) return;
    const bool window = kernel_.reduce_axes.back().is_window();
    int64_t within = 1;  // terms of the windows of later axes
    for (size_t r = inner_.size(); r-- > 0;) {
      const auto& domain = d.Domain(inner_[r]);
      if (kernel_.reduce_axes[r].is_window()) {
        const bool is_large = within > 1 && within * domain[0] > kMostInWindow;
        const int64_t choice =
            is_large ? d.Weighted({{0, 1}, {1, 7}}) : d.Weighted({{0, 7}, {1, 1}});
        d[inner_[r]] = domain[static_cast<size_t>(choice) % domain.size()];
        within *= domain[0];
      } else {
        d[inner_[r]] = window_ > kMostInWindow ? d.Weighted({{1, 2}, {2, 3}, {4, 4}, {8, 3}})
                       : window                ? d.Weighted({{4, 3}, {8, 5}, {16, 3}, {32, 1}})
                                               : d.Weighted({{4, 1}, {8, 5}, {16, 6}, {32, 3}});
      }
    }
  }

  void Describe(Tile& tile) const override {
    tile.reduced.resize(inner_.size());
    tile.in_one_tile = one_tile_.has_value() && tile[*one_tile_] != 0;
    for (size_t r = 0; r < inner_.size(); ++r) {
      tile.reduced[r] = tile.in_one_tile ? kernel_.reduce_axes[r].extent : tile[inner_[r]];
    }
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place != Place::kTiles) return;
    const LoopList loops = nest.w.ReduceLoops(nest.reduction);
    LoopList outer, slice;
    for (size_t r = 0; r < loops.size(); ++r) {
      if (tile.slices > 1 && r == kernel_.shared_axis) {
        const auto parts = nest.w.Split(loops[r], tile.slices, tile.reduced[r] / tile.slices);
        outer.push_back(parts[0]);
        slice = {parts[1]};
        nest.inner.push_back(parts[2]);
      } else {
        const auto parts = nest.w.Split(loops[r], tile.reduced[r]);
        outer.push_back(parts[0]);
        nest.inner.push_back(parts[1]);
      }
    }
    LoopList data = nest.w.DataLoops(nest.reduction);
    // Axes of the nest beside the result's are parts of the reduction: blocks, one part each.
    data.erase(data.begin(), data.end() - static_cast<std::ptrdiff_t>(tile.axes.size()));
    nest.w.Reorder(Join({outer, slice, nest.inner, data}));
    // One loop over all tiles, so that a pipeline runs through it from end to end.
    const LoopRef tiles = nest.w.Fuse(outer);
    if (!tile.in_one_tile) nest.tiles = tiles;
    if (!slice.empty()) nest.slice = slice[0];
  }

 private:
  std::vector<HoleId> inner_;
  int64_t window_ = 1;  // terms of one that moves along data
  std::optional<HoleId> one_tile_;
};

}  // namespace

std::unique_ptr<Decision> MakeReduction(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<ReductionDecision>(kernel, holes, false);
}

std::unique_ptr<Decision> MakeShortReduction(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<ReductionDecision>(kernel, holes, true);
}

}  // namespace heddle::search_space
