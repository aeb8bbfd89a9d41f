// How the operands get to the multiply-adds: a tile of each in shared memory, fetched by all
// threads of the block, and a fragment of that in each thread's registers.
#include <algorithm>

#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostTrips = 32;

class OperandsDecision : public Decision {
 public:
  OperandsDecision(const TiledKernel& kernel, Holes& holes) : Decision(kernel) {
    for (const Operand& in : kernel.operands) {
      const std::string& name = in.tensor->name;
      std::vector<int64_t> vectors = {1}, aligned = {1};
      for (int64_t v = 2; v <= 4 && in.row_extent % v == 0; v *= 2) vectors.push_back(v);
      const bool halo = in.dims.back().size() > 1 || (in.is_stage && vectors.size() > 1);
      if (halo && vectors.size() > 1) aligned.push_back(4);
      const std::vector<int64_t> pads =
          in.is_transposed() ? std::vector<int64_t>{4, 0, 1} : std::vector<int64_t>{0, 4};
      holes_.push_back({holes.Add(name + ".fetch", vectors, kMemoryGroup),
                        holes.Add(name + ".pad", pads, kMemoryGroup),
                        holes.Add(name + ".align", aligned, kMemoryGroup)});
    }
    const bool window = kernel.reduce_axes.size() > 1 && kernel.reduce_axes.back().is_window();
    out_ = holes.Add("fragments_out", window ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0},
                     kReductionGroup);
  }

  void Draw(const Drawing& d, Tile&) const override {
    if (d.anywhere) return;
    for (size_t i = 0; i < holes_.size(); ++i) {
      if (d.Weighted({{1, 3}, {0, 1}}) != 0) d[holes_[i].fetch] = d.Domain(holes_[i].fetch).back();
      // Without padding, what is stored across the rows of a tile meets the same banks.
      if (kernel_.operands[i].is_transposed()) {
        d[holes_[i].pad] = d.Weighted({{4, 4}, {1, 2}, {0, 1}});
      }
    }
  }

  void Describe(Tile& tile) const override {
    tile.fragment_axis = kernel_.reduce_axes.size() - 1 - static_cast<size_t>(tile[out_]);
  }

  absl::Status Cost(const Tile& tile, Usage& usage) const override {
    for (size_t i = 0; i < holes_.size(); ++i) {
      const int64_t elements = SharedElements(i, tile), vector = tile[holes_[i].fetch];
      const int64_t bytes = elements * SizeOf(kernel_.operands[i].tensor->dtype);
      const int64_t trips = CeilDiv(elements, tile.Threads() * vector);
      if (trips > kMostTrips) return kernel_.TooMany(trips, "fetches a thread", kMostTrips);
      usage.shared_bytes += (bytes + 31) / 16 * 16 * tile.shared_copies;
      usage.registers += FragmentElements(kernel_.operands[i], tile) * tile.fragment_copies;
      if (tile.through_registers) usage.registers += trips * vector;
    }
    return absl::OkStatus();
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place != Place::kOperands) return;
    for (size_t i = 0; i < holes_.size(); ++i) {
      WriteFragment(kernel_.operands[i], WriteShared(i, tile, nest), tile, nest);
    }
  }

 private:
  struct OperandHoles {
    HoleId fetch, pad, align;
  };

  // Elements of a dimension in a block's tile.
  int64_t SharedExtent(size_t i, size_t d, const Tile& tile) const {
    const Operand& in = kernel_.operands[i];
    int64_t extent = 1;
    for (const IndexTerm& t : in.dims[d]) {
      const int64_t span = t.axis < tile.axes.size() ? tile.axes[t.axis].of_block()
                                                     : tile.reduced[t.axis - tile.axes.size()];
      extent += (span - 1) * t.stride;
    }
    const int64_t align = tile[holes_[i].align];
    if (d + 1 == in.dims.size() && align > 1) extent = CeilDiv(extent + align - 1, align) * align;
    return extent;
  }

  int64_t SharedElements(size_t i, const Tile& tile) const {
    int64_t elements = 1;
    for (size_t d = 0; d < kernel_.operands[i].dims.size(); ++d) {
      const int64_t pad = d == kernel_.operands[i].inner ? tile[holes_[i].pad] : 0;
      elements *= SharedExtent(i, d, tile) + pad;
    }
    return elements;
  }

  static int64_t FragmentElements(const Operand& in, const Tile& tile) {
    int64_t elements = 1, vthreads = 1;
    uint64_t used = 0;
    for (const auto& dim : in.dims) {
      int64_t extent = 1;
      for (const IndexTerm& t : dim) {
        if (t.axis < tile.axes.size()) {
          extent += (tile.axes[t.axis].elements - 1) * t.stride;
          if ((used >> t.axis & 1) == 0) vthreads *= tile.axes[t.axis].vthreads;
          used |= uint64_t{1} << t.axis;
        } else if (t.axis - tile.axes.size() > tile.fragment_axis) {
          extent += (tile.reduced[t.axis - tile.axes.size()] - 1) * t.stride;
        }
      }
      elements *= extent;
    }
    return elements * vthreads;
  }

  StageRef WriteShared(size_t i, const Tile& tile, Nest& nest) const {
    const Operand& in = kernel_.operands[i];
    const OperandHoles& holes = holes_[i];
    StageRef shared{in.tensor};
    if (in.is_stage) {
      nest.w.SetScope(shared, Scope::kShared);
    } else {
      shared = nest.w.CacheRead(in.tensor, Scope::kShared, nest.reduction);
    }
    nest.w.ComputeAt(shared, nest.tiles);
    if (tile[holes.align] > 1) nest.w.Align(shared, in.dims.size() - 1, tile[holes.align]);
    std::vector<size_t> order;
    for (size_t d = 0; d < in.dims.size(); ++d) {
      if (d != in.inner) order.push_back(d);
    }
    order.push_back(in.inner);
    nest.w.StorageLayout(shared, order, tile[holes.pad], 0);
    nest.w.Fetch(shared, tile.Threads(), tile[holes.fetch]);
    return shared;
  }

  // A contiguous run along the innermost dimension in shared memory.
  static void WriteFragment(const Operand& in, const StageRef& shared, const Tile& tile,
                            Nest& nest) {
    const StageRef fragment = nest.w.CacheRead(shared.tensor, Scope::kLocal, nest.reduction);
    nest.w.ComputeAt(fragment, nest.inner[tile.fragment_axis]);
    const auto& run = in.dims[in.inner];
    if (run.size() != 1 || run[0].stride != 1 || run[0].axis >= tile.axes.size()) return;
    const int64_t vector = WidestVector(tile.axes[run[0].axis].elements);
    if (vector == 1) return;
    LoopList loops = nest.w.Loops(fragment);
    const auto [outer, inner] = nest.w.Split(loops[in.inner], vector);
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(in.inner));
    nest.w.Reorder(Join({loops, {outer, inner}}));
    nest.w.Vectorize(inner);
  }

  std::vector<OperandHoles> holes_;
  // Fragments are read in the innermost loop of the reduction or, 1, in the one around it, so that
  // a row with halo serves every position of a window.
  HoleId out_;
};

}  // namespace

std::unique_ptr<Decision> MakeOperands(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<OperandsDecision>(kernel, holes);
}

}  // namespace heddle::search_space
