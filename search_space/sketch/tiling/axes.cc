// How the result is dealt out: each data axis to blocks, virtual threads, warps, lanes and a
// thread's registers.
#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/str_cat.h"
#include "search_space/ir/stmt.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostAccumulators = 128;
constexpr int64_t kShortAxis = 64;   // shorter, an axis may want tiles such as 7
constexpr int64_t kFullBlock = 128;  // threads that keep a multiprocessor busy
constexpr int64_t kVectorRun = 4;    // elements of 4 bytes in the widest access

class AxesDecision : public Decision {
 public:
  AxesDecision(const TiledKernel& kernel, Holes& holes) : Decision(kernel) {
    for (const TiledAxis& axis : kernel.axes) {
      // A block tile reaches past a short axis by less than a factor of two.
      const int64_t limit = axis.is_batch ? 1 : axis.extent;
      std::vector<int64_t> elements;
      for (int64_t t : {1, 2, 3, 4, 6, 7, 8}) {
        if (t == 1 || t < 2 * limit) elements.push_back(t);
      }
      holes_.push_back({holes.Add(axis.name + ".vthread", PowersUpTo(4, limit), kAxesGroup),
                        holes.Add(axis.name + ".warps", PowersUpTo(8, limit), kAxesGroup),
                        holes.Add(axis.name + ".lanes", PowersUpTo(32, limit), kAxesGroup),
                        holes.Add(axis.name + ".tile", elements, kAxesGroup)});
    }
  }

  // Whole warps of a few lanes along each axis, 32 to 128 accumulators a thread in runs of four,
  // and at least a block for most multiprocessors, unless the reduction is split: small results
  // cannot fill the device, big ones should.
  void Draw(const Drawing& d, Tile& tile) const override {
    static constexpr int kAttempts = 6;
    const bool may_split = d.Weighted({{1, 1}, {0, 2}}) != 0;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      tile.axes.assign(holes_.size(), {});
      DrawThreads(d, tile);
      DrawElements(d, tile);
      if (d.anywhere || may_split || tile.Tiles() * 4 >= kernel_.target.sm_count * 3) break;
    }
    for (size_t a = 0; a < holes_.size(); ++a) {
      for (size_t p = 0; p < kParts.size(); ++p) d[holes_[a][p]] = tile.axes[a].*kParts[p];
    }
  }

  void Describe(Tile& tile) const override {
    tile.axes.resize(holes_.size());
    for (size_t a = 0; a < holes_.size(); ++a) {
      for (size_t p = 0; p < kParts.size(); ++p) tile.axes[a].*kParts[p] = tile[holes_[a][p]];
    }
  }

  absl::Status Cost(const Tile& tile, Usage& usage) const override {
    int64_t least_threads = 1;
    for (size_t a = 0; a < tile.axes.size(); ++a) {
      const int64_t extent = kernel_.axes[a].extent, block = tile.axes[a].of_block();
      const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(extent)));
      least_threads = std::min(least_threads * power, kWarpThreads);
      // Tiles that are mostly padding are never worth a trial.
      if (block >= 2 * extent && block > 1) {
        return kernel_.TooMany(block, "elements in a tile", 2 * extent);
      }
    }
    if (tile.TileThreads() < least_threads) {
      return kernel_.Refuse(absl::StrCat(tile.TileThreads(), " threads, at least ", least_threads));
    }
    const int64_t most_threads = std::min(kMostTileThreads, kernel_.target.max_threads_per_block);
    if (tile.Threads() > most_threads) {
      return kernel_.TooMany(tile.Threads(), "threads", most_threads);
    }
    if (tile.Tiles() > kernel_.target.max_grid) {
      return kernel_.TooMany(tile.Tiles(), "blocks", kernel_.target.max_grid);
    }
    if (tile.Accumulators() > kMostAccumulators) {
      return kernel_.TooMany(tile.Accumulators(), "accumulators", kMostAccumulators);
    }
    usage.registers += tile.Accumulators();
    return absl::OkStatus();
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place == Place::kLoops) WriteLoops(tile, nest);
    if (place == Place::kKernel && RunVector(tile) > 1) nest.w.Vectorize(nest.elements.back());
  }

 private:
  enum Part { kVthreads, kWarps, kLanes, kElements };
  static constexpr std::array kParts = {&AxisTile::vthreads, &AxisTile::warps, &AxisTile::lanes,
                                        &AxisTile::elements};
  using AxisHoles = std::array<HoleId, kParts.size()>;

  // Multiplies a part of an axis' tile where its hole has that value and the tile stays short.
  void Grow(const Drawing& d, Tile& tile, size_t a, Part part, int64_t factor) const {
    const auto& domain = d.Domain(holes_[a][part]);
    int64_t& value = tile.axes[a].*kParts[part];
    const bool fits = tile.axes[a].of_block() * factor < 2 * kernel_.axes[a].extent &&
                      std::find(domain.begin(), domain.end(), value * factor) != domain.end();
    if (fits) value *= factor;
  }

  // Data axes along which an operand is contiguous in shared memory.
  std::vector<size_t> ContiguousAxes() const {
    std::vector<size_t> out;
    for (const Operand& in : kernel_.operands) {
      const OperandTile& lies = in.tiles[0];
      for (const IndexTerm& t : lies.dims[lies.inner]) {
        if (t.axis < kernel_.axes.size() &&
            std::find(out.begin(), out.end(), t.axis) == out.end()) {
          out.push_back(t.axis);
        }
      }
    }
    return out;
  }

  // Threads are doublings dealt out to the axes: independent draws would seldom multiply up to a
  // valid block.
  void DrawThreads(const Drawing& d, Tile& tile) const {
    const int64_t threads = int64_t{1} << d.Weighted({{5, 1}, {6, 4}, {7, 6}, {8, 4}, {9, 1}});
    const std::vector<size_t> contiguous = ContiguousAxes();
    for (size_t tries = 0; tries < 64 && tile.TileThreads() < threads; ++tries) {
      const bool lane = d.anywhere ? d.Below(2) == 0
                                   : tile.TileThreads() < kernel_.target.warp_size || tries > 32;
      size_t axis = d.Below(tile.axes.size());
      if (lane && !d.anywhere && !contiguous.empty() && d.Below(4) != 0) {
        // Neighbours along contiguous axes, and the squarer warp of two.
        axis = contiguous[d.Below(contiguous.size())];
        const size_t other = contiguous[d.Below(contiguous.size())];
        if (tile.axes[other].lanes < tile.axes[axis].lanes) axis = other;
      }
      Grow(d, tile, axis, lane ? kLanes : kWarps, 2);
    }
  }

  // So are a thread's elements, in runs and in virtual threads.
  void DrawElements(const Drawing& d, Tile& tile) const {
    // Short axes, such as 7 or 14 of an image, want tiles that are no power of two.
    for (size_t a = 0; a < tile.axes.size(); ++a) {
      const auto& runs = d.Domain(holes_[a][kElements]);
      const bool odd = kernel_.axes[a].extent % 8 != 0 && kernel_.axes[a].extent < kShortAxis;
      if (d.anywhere || d.Below(odd ? 3 : 24) == 0) {
        Grow(d, tile, a, kElements, runs[d.Below(runs.size())]);
      }
      if (d.anywhere) Grow(d, tile, a, kVthreads, int64_t{1} << d.Below(3));
    }
    if (d.anywhere) return;
    // As many results a thread as fill every multiprocessor once, give or take a factor of two.
    int64_t results = 1, fill = 4;
    for (const TiledAxis& a : kernel_.axes) results *= a.extent;
    while (fill < 6 && results >= (kernel_.target.sm_count * kFullBlock) << (fill + 1)) ++fill;
    const int64_t accumulators = int64_t{1} << (fill + d.Weighted({{-1, 1}, {0, 4}, {1, 5}}));
    for (size_t tries = 0; tries < 32 && tile.Accumulators() < accumulators; ++tries) {
      // The flatter of two axes: square tiles reuse most.
      const size_t one = d.Below(tile.axes.size()), two = d.Below(tile.axes.size());
      const size_t a = tile.axes[one].of_thread() < tile.axes[two].of_thread() ? one : two;
      const bool run = tile.axes[a].elements < kVectorRun ? d.Below(8) != 0 : d.Below(8) == 0;
      Grow(d, tile, a, run ? kElements : kVthreads, 2);
    }
  }

  int64_t RunVector(const Tile& tile) const {
    return WidestVector(tile.axes.back().elements, kernel_.root.tensor->dtype);
  }

  // The two axes whose lanes alternate in the lowest bits of the thread index, or none: neighbours
  // then share what they read of one operand, and neighbours of neighbours what they read of
  // another, which halves the cycles that 16-byte reads of shared memory take.
  std::vector<size_t> ZigzagAxes(const Tile& tile) const {
    std::vector<uint64_t> readers(tile.axes.size(), 0);
    for (size_t i = 0; i < kernel_.operands.size(); ++i) {
      for (const auto& dim : kernel_.operands[i].tiles[0].dims) {
        for (const IndexTerm& t : dim) {
          if (t.axis < readers.size()) readers[t.axis] |= uint64_t{1} << i;
        }
      }
    }
    for (size_t a = tile.axes.size(); a-- > 0;) {
      for (size_t b = a; b-- > 0;) {
        const bool lanes = tile.axes[a].lanes > 1 && tile.axes[b].lanes > 1;
        const uint64_t both = readers[a] & readers[b];
        if (lanes && both != readers[a] && both != readers[b]) return {b, a};
      }
    }
    return {};
  }

  void WriteLoops(const Tile& tile, Nest& nest) const {
    const LoopList loops = nest.w.Loops(nest.stage);
    const std::vector<size_t> zigzag = ZigzagAxes(tile);
    LoopList lanes, low_lanes;
    for (size_t a = 0; a < tile.axes.size(); ++a) {
      const AxisTile& t = tile.axes[a];
      const LoopRef& axis = loops[loops.size() - tile.axes.size() + a];
      LoopList parts;  // block, vthread, warp, lane (, low lane), elements
      if (std::find(zigzag.begin(), zigzag.end(), a) != zigzag.end()) {
        parts = nest.w.Split(axis, {t.vthreads, t.warps, t.lanes / 2, 2, t.elements});
        low_lanes.push_back(parts[4]);
      } else {
        parts = nest.w.Split(axis, {t.vthreads, t.warps, t.lanes, t.elements});
      }
      nest.blocks.push_back(parts[0]);
      nest.vthreads.push_back(parts[1]);
      nest.threads.push_back(parts[2]);
      lanes.push_back(parts[3]);
      nest.elements.push_back(parts.back());
    }
    nest.threads = Join({nest.threads, lanes, low_lanes});
    if (RunVector(tile) == 1) return;
    const auto [outer, vector] = nest.w.Split(nest.elements.back(), RunVector(tile));
    nest.elements.back() = outer;
    nest.elements.push_back(vector);
  }

  std::vector<AxisHoles> holes_;
};

}  // namespace

std::unique_ptr<Decision> MakeAxes(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<AxesDecision>(kernel, holes);
}

}  // namespace heddle::search_space
