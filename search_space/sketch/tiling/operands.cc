// How the operands get to the multiply-adds: a tile of each in shared memory, fetched by all
// threads of the block, and a fragment of that in each thread's registers.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "search_space/ir/background.h"
#include "search_space/schedule/bounds.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostTrips = 32;
constexpr int64_t kBankBytes = 4;

class OperandsDecision : public Decision {
 public:
  OperandsDecision(const TiledKernel& kernel, Holes& holes) : Decision(kernel) {
    for (const Operand& in : kernel.operands) {
      const OperandTile& lies = in.tiles[0];
      std::vector<int64_t> vectors = {1}, aligned = {1};
      const int64_t widest = ElementsOfAccess(in.dtype);
      for (int64_t v = 2; v <= widest && lies.row_extent % v == 0; v *= 2) vectors.push_back(v);
      const bool halo =
          lies.dims.back().size() > 1 || (in.is_stage && !lies.is_gathered && vectors.size() > 1);
      if (halo && vectors.size() > 1) aligned.push_back(widest);
      // A whole access, or one bank of shared memory.
      const int64_t bank = std::max<int64_t>(1, kBankBytes / SizeOf(in.dtype));
      const std::vector<int64_t> pads = lies.is_transposed() ? std::vector<int64_t>{widest, 0, bank}
                                                             : std::vector<int64_t>{0, widest};
      OperandHoles& own = holes_.emplace_back();
      own.fetch = holes.Add(in.name + ".fetch", vectors, kMemoryGroup);
      own.pad = holes.Add(in.name + ".pad", pads, kMemoryGroup);
      own.align = holes.Add(in.name + ".align", aligned, kMemoryGroup);
      if (in.tiles.size() > 1) own.as = holes.Add(in.name + ".as", {0, 1}, kMemoryGroup);
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
      if (kernel_.operands[i].tiles[0].is_transposed()) {
        const auto& pads = d.Domain(holes_[i].pad);  // a whole access, none, a bank
        d[holes_[i].pad] = pads[static_cast<size_t>(d.Weighted({{0, 4}, {2, 2}, {1, 1}}))];
      }
    }
  }

  void Describe(Tile& tile) const override {
    tile.fragment_axis = kernel_.reduce_axes.size() - 1 - static_cast<size_t>(tile[out_]);
  }

  absl::Status Cost(const Tile& tile, Usage& usage) const override {
    bool fetches = false;  // in each round of a block or of the reduction
    for (size_t i = 0; i < holes_.size(); ++i) {
      const Operand& in = kernel_.operands[i];
      const int64_t elements = SharedElements(i, tile), vector = tile[holes_[i].fetch];
      const int64_t bytes = elements * SizeOf(in.dtype);
      const int64_t trips = CeilDiv(elements, tile.Threads() * vector);
      if (trips > kMostTrips) return kernel_.TooMany(trips, "fetches a thread", kMostTrips);
      if (IsAsync(tile) && vector * SizeOf(in.dtype) < kLeastAsyncBytes) {
        return kernel_.Refuse(in.name + " is fetched in less than an asynchronous copy moves");
      }
      const bool is_fetched_once = tile.IsFetchedOnce(Lies(i, tile));
      fetches = fetches || !is_fetched_once;
      const int64_t copies = is_fetched_once ? 1 : tile.shared_copies;
      usage.shared_bytes += (bytes + 31) / 16 * 16 * copies;
      HEDDLE_ASSIGN_OR_RETURN(fragment, FragmentElements(i, tile));
      usage.registers += fragment * tile.fragment_copies;
      if (tile.through_registers) usage.registers += trips * vector;
    }
    if (tile.shared_copies > 1 && !fetches) {
      return kernel_.Refuse("all that is fetched is fetched once: there is nothing to pipeline");
    }
    for (const HeldOperand& held : kernel_.held) {
      int64_t elements = 1;
      for (size_t a : held.axes) elements *= tile.axes[a].of_thread();
      usage.registers += elements;
    }
    return absl::OkStatus();
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place == Place::kReduction) WriteGathers(tile, nest);
    if (place != Place::kOperands) return;
    for (const StageRef& held : nest.held) {
      nest.w.SetScope(held, Scope::kLocal);
      nest.w.ComputeAt(held, nest.thread);
    }
    for (size_t i = 0; i < holes_.size(); ++i) {
      WriteFragment(Lies(i, tile), WriteShared(i, tile, nest), tile, nest);
    }
  }

 private:
  static bool IsAsync(const Tile& tile) {
    return tile.shared_copies > 1 && !tile.through_registers;
  }

  struct OperandHoles {
    HoleId fetch, pad, align;
    std::optional<HoleId> as;  // which of the operand's tiles, if there are two
  };

  const OperandTile& Lies(size_t i, const Tile& tile) const {
    const auto& as = holes_[i].as;
    return kernel_.operands[i].tiles[as.has_value() ? static_cast<size_t>(tile[*as]) : 0];
  }

  // Only a hull has a start that could be moved.
  int64_t Alignment(size_t i, const Tile& tile) const {
    return Lies(i, tile).is_gathered ? 1 : tile[holes_[i].align];
  }

  // Elements of a dimension in a block's tile.
  int64_t SharedExtent(size_t i, size_t d, const Tile& tile) const {
    const OperandTile& in = Lies(i, tile);
    int64_t extent = 1;
    for (const IndexTerm& t : in.dims[d]) {
      const int64_t span = t.axis < tile.axes.size() ? tile.axes[t.axis].of_block()
                                                     : tile.reduced[t.axis - tile.axes.size()];
      extent += (span - 1) * std::abs(t.stride);
    }
    const int64_t align = Alignment(i, tile);
    if (d + 1 == in.dims.size() && align > 1) extent = RoundUp(extent + align - 1, align);
    return extent;
  }

  int64_t SharedElements(size_t i, const Tile& tile) const {
    const OperandTile& in = Lies(i, tile);
    int64_t elements = 1;
    for (size_t d = 0; d < in.dims.size(); ++d) {
      elements *= SharedExtent(i, d, tile) + (d == in.inner ? tile[holes_[i].pad] : 0);
    }
    return elements;
  }

  // Of a thread; ResourceExhausted where few of them would be used, as neighbours along an axis
  // with a stride are far apart.
  absl::StatusOr<int64_t> FragmentElements(size_t i, const Tile& tile) const {
    int64_t elements = 1, vthreads = 1;
    uint64_t seen = 0;
    for (const auto& dim : Lies(i, tile).dims) {
      int64_t extent = 1, used = 1;
      const auto add = [&](int64_t count, int64_t stride) {
        extent += (count - 1) * std::abs(stride);
        used *= count;
      };
      for (const IndexTerm& t : dim) {
        if (t.axis < tile.axes.size()) {
          add(tile.axes[t.axis].elements, t.stride);
          if ((seen >> t.axis & 1) == 0) vthreads *= tile.axes[t.axis].vthreads;
          seen |= uint64_t{1} << t.axis;
        } else if (const size_t r = t.axis - tile.axes.size(); r > tile.fragment_axis) {
          const bool sliced = r == kernel_.shared_axis;
          add(tile.reduced[r] / (sliced ? tile.slices : 1), t.stride);
        }
      }
      if (extent > kMaxHoles * used) {
        return kernel_.TooMany(extent, "elements of a fragment, most unused", kMaxHoles * used);
      }
      elements *= extent;
    }
    return elements * vthreads;
  }

  // Before anything else, while the reduction is what the operands were found in.
  void WriteGathers(const Tile& tile, Nest& nest) const {
    std::vector<BufferRef> inlined = kernel_.inlined;
    const auto gather = [&](size_t number, const std::vector<BufferRef>& stages) {
      inlined.insert(inlined.end(), stages.begin(), stages.end());
      return nest.w.GatherRead(kernel_.reduction, static_cast<int64_t>(number));
    };
    for (size_t i = 0; i < holes_.size(); ++i) {
      const Operand& in = kernel_.operands[i];
      nest.operands.push_back(Lies(i, tile).is_gathered ? gather(in.number, in.inlined)
                                                        : StageRef{in.tensor});
    }
    for (const HeldOperand& in : kernel_.held) nest.held.push_back(gather(in.number, in.inlined));
    for (auto stage = inlined.begin(); stage != inlined.end(); ++stage) {
      if (std::find(inlined.begin(), stage, *stage) == stage) nest.w.ComputeInline({*stage});
    }
  }

  StageRef WriteShared(size_t i, const Tile& tile, Nest& nest) const {
    const OperandTile& in = Lies(i, tile);
    const OperandHoles& holes = holes_[i];
    StageRef shared = nest.operands[i];
    if (in.is_gathered || kernel_.operands[i].is_stage) {
      nest.w.SetScope(shared, Scope::kShared);
    } else {
      shared = nest.w.CacheRead(shared.tensor, Scope::kShared, nest.reduction);
    }
    nest.w.ComputeAt(shared, tile.IsFetchedOnce(in) ? nest.once : nest.tiles);
    if (const int64_t align = Alignment(i, tile); align > 1) {
      nest.w.Align(shared, in.dims.size() - 1, align);
    }
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
  static void WriteFragment(const OperandTile& in, const StageRef& shared, const Tile& tile,
                            Nest& nest) {
    const StageRef fragment = nest.w.CacheRead(shared.tensor, Scope::kLocal, nest.reduction);
    nest.w.ComputeAt(fragment, nest.inner[tile.fragment_axis]);
    const auto& run = in.dims[in.inner];
    if (run.size() != 1 || run[0].stride != 1 || run[0].axis >= tile.axes.size()) return;
    const int64_t vector = WidestVector(tile.axes[run[0].axis].elements, shared.tensor->dtype);
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
