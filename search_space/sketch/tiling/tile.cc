#include "search_space/sketch/tiling/tile.h"

#include <algorithm>

namespace heddle::search_space {

int64_t Tile::TileThreads() const {
  int64_t threads = 1;
  for (const AxisTile& a : axes) threads *= a.warps * a.lanes;
  return threads;
}

int64_t Tile::Accumulators() const {
  int64_t accumulators = kernel.results;
  for (const AxisTile& a : axes) accumulators *= a.of_thread();
  return accumulators;
}

int64_t Tile::Tiles() const {
  int64_t tiles = 1;
  for (size_t a = 0; a < axes.size(); ++a) {
    tiles *= CeilDiv(kernel.axes[a].extent, axes[a].of_block());
  }
  return tiles;
}

int64_t Tile::PartLength() const {
  const size_t shared = kernel.shared_axis;
  const int64_t tile = reduced[shared];
  return RoundUp(CeilDiv(kernel.reduce_axes[shared].extent, parts), tile);
}

int64_t Tile::NeededParts() const {
  return parts == 1 ? 1 : CeilDiv(kernel.reduce_axes[kernel.shared_axis].extent, PartLength());
}

int64_t Tile::Depth() const {
  int64_t depth = 1;
  for (int64_t r : reduced) depth *= r;
  return depth;
}

int64_t Tile::FragmentReads() const {
  int64_t reads = 1;
  for (size_t r = 0; r <= fragment_axis; ++r) reads *= reduced[r];
  return reads;
}

bool Tile::IsFetchedOnce(const OperandTile& operand) const {
  const auto has_rounds = [](const AxisTile& a) { return a.rounds > 1; };
  if (!in_one_tile || std::none_of(axes.begin(), axes.end(), has_rounds)) return false;
  return std::none_of(operand.dims.begin(), operand.dims.end(), [&](const auto& dim) {
    return std::any_of(dim.begin(), dim.end(), [&](const IndexTerm& t) {
      return t.axis < axes.size() && has_rounds(axes[t.axis]);
    });
  });
}

double Tile::Waste() const {
  double waste = 1;
  const auto cover = [&](int64_t covered, int64_t extent) {
    waste *= static_cast<double>(covered) / static_cast<double>(extent);
  };
  for (size_t a = 0; a < axes.size(); ++a) {
    const int64_t extent = kernel.axes[a].extent, tile = axes[a].of_block();
    cover(RoundUp(extent, tile), extent);
  }
  const size_t shared = kernel.shared_axis;
  for (size_t r = 0; r < reduced.size(); ++r) {
    const int64_t extent = kernel.reduce_axes[r].extent;
    cover(r == shared ? NeededParts() * PartLength() : RoundUp(extent, reduced[r]), extent);
  }
  return waste;
}

}  // namespace heddle::search_space
