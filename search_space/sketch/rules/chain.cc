// Reductions that read one another's results, in one kernel.
//
// A block makes some rows of everything. What a reduction is to read of another one's result is
// whole in shared memory by then: a product, tiled like any other, in rounds along its columns; a
// statistic of a row, such as a maximum or a sum, by threads that share the row. The last reduction
// is tiled as a kernel of its own would be; what it reads of the others is computed as its tiles
// are filled. Of two products with a softmax between, neither scores nor weights go to memory so.
#include "search_space/sketch/patterns/chain.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/stmt.h"
#include "search_space/sketch/rules/rules.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostElements = 8;       // of one axis, by one thread
constexpr int64_t kMostAccumulators = 64;  // of a thread, of a result that others read
constexpr int64_t kMostStatisticLanes = 64;
constexpr int kGroupsOfTiling = kKernelGroup + 1;

// The root is no sum that blocks share, and its blocks have nothing to gain from another order.
constexpr MakeDecision* kRootDecisions[] = {MakeAxes,     MakeReduction, MakeOperands,
                                            MakePipeline, MakeOccupancy, MakeSlices};
constexpr MakeDecision* kLinkDecisions[] = {MakeShortReduction, MakeOperands, MakePipeline};

// Result of a reduction with columns: the holes of its tiling.
struct TiledLink {
  TiledLink(const ChainLink& of, Holes in) : link(of), holes(std::move(in)) {
    const int64_t widest = ElementsOfAccess(link.result.tensor->dtype);
    lanes = holes.Add("lanes", PowersUpTo(1024, 1024), kAxesGroup);
    tile = holes.Add("tile", {4, 1, 2, 8}, kAxesGroup);
    warp_rows = holes.Add("warp_rows", {1, 2, 4, 8}, kAxesGroup);
    pad = holes.Add("pad", {widest, 0, 4 * widest}, kMemoryGroup);
    decisions.emplace(*link.tiled, kLinkDecisions, holes);
  }

  const ChainLink& link;
  Holes holes;
  HoleId lanes, tile, pad;  // along the last column: of threads, of a thread; behind each row
  HoleId warp_rows;         // lanes of a warp across rows, which read the same of other operands
  std::optional<Decisions> decisions;

  // The axis whose columns are made in rounds.
  size_t column() const { return link.columns.back(); }
};

class ChainPlan : public KernelPlan {
 public:
  explicit ChainPlan(Chain chain)
      : chain_(std::move(chain)),
        root_holes_(holes_, chain_.root.root.name() + "."),
        root_(chain_.root, kRootDecisions, root_holes_) {
    int group = kGroupsOfTiling;
    for (const ChainLink& link : chain_.links) {
      if (!link.tiled.has_value()) continue;
      tiled_.emplace_back(link, Holes(holes_, link.result.name() + ".", group));
      group += kGroupsOfTiling;
    }
    const bool masked =
        chain_.is_masked || std::any_of(chain_.links.begin(), chain_.links.end(),
                                        [](const ChainLink& link) { return link.is_masked; });
    masked_ = Holes(holes_, "", group)
                  .Add("skip_masked", masked ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0},
                       kAxesGroup);
    if (!masked || !chain_.row.has_value()) return;
    reversed_ = Holes(holes_, "", group).Add("last_first", {0, 1}, kAxesGroup);
  }

  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }

  absl::Status Check(HoleValues values) const override {
    const Tile root = root_.TileOf(values);
    Usage usage;
    HEDDLE_RETURN_IF_ERROR(root_.Cost(root, usage));
    HEDDLE_RETURN_IF_ERROR(CheckRows(root, values));
    if (IsReversed(values) && values[masked_] == 0) {
      return chain_.root.Refuse("blocks that leave nothing out have all the same to do");
    }
    for (const TiledLink& link : tiled_) {
      Usage inside{.shared_bytes = usage.shared_bytes};
      HEDDLE_RETURN_IF_ERROR(CheckLink(link, root, values, inside));
      usage.shared_bytes = inside.shared_bytes;
      // The last reduction's accumulators live in other statements.
      usage.registers = std::max(usage.registers, inside.registers);
    }
    usage.shared_bytes += ResultBytes(root, values);
    return CheckUsage(chain_.root, root, usage);
  }

  double Waste(HoleValues values) const override {
    const Tile root = root_.TileOf(values);
    double waste = root.Waste();
    for (const TiledLink& link : tiled_) {
      const Tile tile = TileOf(link, root, values);
      const int64_t extent = link.link.tiled->axes[link.column()].extent;
      const int64_t covered = RoundUp(extent, tile.axes[link.column()].of_block());
      waste = std::max(waste, static_cast<double>(covered) / static_cast<double>(extent));
    }
    return waste;
  }

  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    static constexpr int kAttempts = 8;
    KernelPlan::Draw(rng, values);
    Drawing drawing{rng, holes_, values};
    drawing.anywhere = drawing.Weighted({{1, 1}, {0, 7}}) != 0;
    if (drawing.Domain(masked_).size() > 1 && !drawing.anywhere) {
      drawing[masked_] = drawing.Weighted({{1, 7}, {0, 1}});
    }
    // Rows of a causal mask grow longer; long ones that are started last are waited for.
    if (reversed_.has_value()) {
      drawing[*reversed_] = drawing[masked_] == 0 ? 0 : drawing.Weighted({{1, 3}, {0, 1}});
    }
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      Tile root{.kernel = chain_.root, .values = values};
      root_.Draw(drawing, root);
      const Tile drawn = root_.TileOf(values);
      if (CheckRows(drawn, values).ok() && AreResultsSmall(drawn, values)) break;
    }
    const Tile root = root_.TileOf(values);
    for (const TiledLink& link : tiled_) DrawLink(drawing, link, root);
  }

 protected:
  void Write(ScheduleWriter& w, HoleValues values) const override {
    for (const BufferRef& stage : chain_.inlined) w.ComputeInline({stage});
    if (values[masked_] != 0) {
      if (chain_.is_masked) w.SkipMasked(chain_.root.reduction);
      for (const ChainLink& link : chain_.links) {
        if (link.is_masked) w.SkipMasked(link.reduction);
      }
    }
    const Tile root = root_.TileOf(values);
    Nest nest{.w = w, .stage = chain_.root.root, .reduction = chain_.root.reduction};
    // Blocks that run together have as much to do as one another.
    if (values[masked_] != 0) nest.slowest = chain_.row;
    nest.reversed = IsReversed(values);
    root_.WriteKernel(root, nest);
    // Who reads a result is in its place before it.
    auto tiled = tiled_.rbegin();
    for (auto link = chain_.links.rbegin(); link != chain_.links.rend(); ++link) {
      if (link->tiled.has_value()) {
        WriteTiled(w, *tiled++, root, values, nest.thread);
      } else {
        WriteStatistic(w, *link, root, nest.thread);
      }
    }
  }

 private:
  int64_t RowsOf(const Tile& root) const {
    return chain_.row.has_value() ? root.axes[*chain_.row].of_block() : 1;
  }

  bool IsReversed(HoleValues values) const {
    return reversed_.has_value() && values[reversed_->index] != 0;
  }

  // All that is shared by a row's columns is computed once where a block has all of them.
  absl::Status CheckRows(const Tile& root, HoleValues values) const {
    const int64_t threads = root.Threads(), rows = RowsOf(root);
    HEDDLE_RETURN_IF_ERROR(CheckMask(chain_.root, chain_.is_masked, root, values));
    if (rows > threads) return chain_.root.TooMany(rows, "rows of a block", threads);
    for (size_t a : chain_.columns) {
      const int64_t extent = chain_.root.axes[a].extent, block = root.axes[a].of_block();
      if (tiled_.empty() || block >= extent) continue;
      return chain_.root.Refuse(absl::StrCat("a block has ", block, " of ", extent, " columns"));
    }
    return absl::OkStatus();
  }

  // Registers that run ahead would read what is not fetched.
  absl::Status CheckMask(const TiledKernel& kernel, bool is_masked, const Tile& tile,
                         HoleValues values) const {
    if (values[masked_] == 0 || !is_masked || tile.fragment_copies == 1) {
      return absl::OkStatus();
    }
    return kernel.Refuse("registers run ahead of tiles that may be left out");
  }

  // How the threads of the root share a round of a link's tile.
  Tile TileOf(const TiledLink& link, const Tile& root, HoleValues values) const {
    Tile tile = link.decisions->TileOf(values);
    tile.axes.assign(link.link.tiled->axes.size(), {});
    AxisTile& column = tile.axes[link.column()];
    column.lanes = tile[link.lanes];
    column.elements = tile[link.tile];
    for (size_t a : link.link.columns) {
      const int64_t extent = link.link.tiled->axes[a].extent;
      tile.axes[a].rounds = CeilDiv(extent, tile.axes[a].of_block());
    }
    const int64_t lanes = std::max<int64_t>(1, root.Threads() / column.lanes);
    if (link.link.row.has_value()) {
      AxisTile& row = tile.axes[*link.link.row];
      row.lanes = lanes;
      row.elements = CeilDiv(RowsOf(root), lanes);
    }
    return tile;
  }

  absl::Status CheckLink(const TiledLink& link, const Tile& root, HoleValues values,
                         Usage& usage) const {
    const TiledKernel& kernel = *link.link.tiled;
    const Tile tile = TileOf(link, root, values);
    const int64_t rows = RowsOf(root);
    HEDDLE_RETURN_IF_ERROR(CheckMask(kernel, link.link.is_masked, tile, values));
    int64_t row_lanes = 1;
    if (link.link.row.has_value()) {
      const AxisTile& row = tile.axes[*link.link.row];
      row_lanes = row.lanes;
      if (row.elements > kMostElements) {
        return kernel.TooMany(row.elements, "rows of a thread", kMostElements);
      }
      if (row.lanes >= 2 * rows) return kernel.TooMany(row.lanes, "lanes of rows", 2 * rows);
      if (tile[link.warp_rows] > row.lanes) {
        return kernel.TooMany(tile[link.warp_rows], "rows of a warp", row.lanes);
      }
    } else if (tile[link.warp_rows] > 1) {
      return kernel.TooMany(tile[link.warp_rows], "rows of a warp", 1);
    }
    const AxisTile& column = tile.axes[link.column()];
    if (row_lanes * column.lanes != root.Threads()) {
      return kernel.Refuse(absl::StrCat(row_lanes, " times ", column.lanes, " lanes, but ",
                                        root.Threads(), " threads"));
    }
    const int64_t extent = kernel.axes[link.column()].extent;
    if (column.elements > 1 && column.of_block() >= 2 * extent) {
      return kernel.TooMany(column.of_block(), "columns of a round", 2 * extent);
    }
    if (tile.Accumulators() > kMostAccumulators) {
      return kernel.TooMany(tile.Accumulators(), "accumulators", kMostAccumulators);
    }
    usage.registers += tile.Accumulators();
    return link.decisions->Cost(tile, usage);
  }

  // Threads that share a row of a statistic.
  static int64_t LanesOf(const ChainLink& link, int64_t rows, int64_t threads) {
    const int64_t most =
        std::min({threads / rows, CeilDiv(link.terms, link.vector), kMostStatisticLanes});
    return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, most))));
  }

  // How far a result's column reaches: as far as any who reads it does, in whole tiles.
  int64_t Reach(int64_t extent, const TiledLink& self, const Tile& root, HoleValues values) const {
    int64_t reach = extent;
    const auto reads = [&](int64_t tile) { reach = std::max(reach, RoundUp(extent, tile)); };
    for (int64_t r : root.reduced) reads(r);
    for (size_t c : chain_.columns) reads(root.axes[c].of_block());
    for (const TiledLink& other : tiled_) {
      if (&other == &self) continue;
      const Tile tile = TileOf(other, root, values);
      for (int64_t r : tile.reduced) reads(r);
      for (size_t c : other.link.columns) reads(tile.axes[c].of_block());
    }
    for (const ChainLink& other : chain_.links) {
      if (other.tiled.has_value()) continue;
      reads(LanesOf(other, RowsOf(root), root.Threads()) * other.vector);
    }
    return reach;
  }

  // What a result takes of shared memory, at most.
  int64_t ResultBytes(const ChainLink& link, const Tile& root, HoleValues values) const {
    const int64_t rows = RowsOf(root), size = SizeOf(link.result.tensor->dtype);
    if (!link.tiled.has_value()) {
      const int64_t lanes = LanesOf(link, rows, root.Threads());
      return RoundUp(rows * lanes * size, 16) + RoundUp(rows * size, 16);
    }
    const auto self = std::find_if(tiled_.begin(), tiled_.end(),
                                   [&](const TiledLink& t) { return &t.link == &link; });
    const std::vector<TiledAxis>& axes = link.tiled->axes;
    int64_t elements = 1;
    for (size_t a = 0; a < axes.size(); ++a) {
      const bool is_column =
          std::find(link.columns.begin(), link.columns.end(), a) != link.columns.end();
      int64_t in_block = link.row == a ? rows : 1;
      if (is_column) in_block = Reach(axes[a].extent, *self, root, values);
      // Whatever lies innermost is padded.
      elements *= in_block + (a + 1 == axes.size() ? values[self->pad] : 0);
    }
    return RoundUp(elements * size, 16);
  }

  int64_t ResultBytes(const Tile& root, HoleValues values) const {
    int64_t bytes = 0;
    for (const ChainLink& link : chain_.links) bytes += ResultBytes(link, root, values);
    return bytes;
  }
  // Do they leave room for what is fetched? Long rows seldom do.
  bool AreResultsSmall(const Tile& root, HoleValues values) const {
    return ResultBytes(root, values) < chain_.root.target.max_shared_bytes_per_block;
  }

  // A column of lanes with as many rows as fill the block, whole accesses and most of the columns.
  void DrawLink(const Drawing& d, const TiledLink& link, const Tile& root) const {
    static constexpr int kAttempts = 4;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      Tile drawn{.kernel = *link.link.tiled, .values = d.values};
      link.decisions->Draw(d, drawn);
      if (CheckMask(drawn.kernel, link.link.is_masked, drawn, d.values).ok()) break;
    }
    if (!d.anywhere) d[link.tile] = d.Weighted({{4, 6}, {2, 2}, {8, 2}, {1, 1}});
    std::vector<int64_t> valid;
    for (int64_t lanes : d.Domain(link.lanes)) {
      if (root.Threads() % lanes != 0) continue;
      d[link.lanes] = lanes;
      Usage usage;
      d[link.warp_rows] = 1;
      if (CheckLink(link, root, d.values, usage).ok()) valid.push_back(lanes);
    }
    if (valid.empty()) return;
    d[link.lanes] = valid[d.Below(valid.size())];
    // As square a warp as there are rows for reads least of its operands.
    const int64_t most = link.link.row.has_value() ? root.Threads() / d[link.lanes] : 1;
    const int64_t rows = d.Weighted({{4, 6}, {2, 2}, {8, 2}, {1, 2}});
    d[link.warp_rows] = std::min(rows, most);
  }

  void WriteTiled(ScheduleWriter& w, const TiledLink& link, const Tile& root, HoleValues values,
                  const LoopRef& thread) const;
  void WriteStatistic(ScheduleWriter& w, const ChainLink& link, const Tile& root,
                      const LoopRef& thread) const;

  const Chain chain_;
  Holes root_holes_;
  const Decisions root_;
  std::deque<TiledLink> tiled_;  // which refer to their kernels
  HoleId masked_;
  // Do blocks of the last rows start first, of which masks may leave most?
  std::optional<HoleId> reversed_;
};

void ChainPlan::WriteTiled(ScheduleWriter& w, const TiledLink& link, const Tile& root,
                           HoleValues values, const LoopRef& thread) const {
  const Tile tile = TileOf(link, root, values);
  const StageRef& result = link.link.result;
  Nest nest{.w = w, .stage = result, .reduction = link.link.reduction, .once = thread};
  link.decisions->Write(Place::kReduction, tile, nest);
  w.SetScope(result, Scope::kShared);
  w.ComputeAt(result, thread);
  std::vector<size_t> order(tile.axes.size());
  for (size_t a = 0; a < order.size(); ++a) order[a] = a;
  w.StorageLayout(result, order, tile[link.pad], 0);
  const LoopList axes = w.DataLoops(result);
  LoopList rounds;
  LoopRef round;
  // Lanes of a warp are some along either axis, and alternate in the lowest bits of the thread's
  // index, so that neighbours share what they read (tiling/axes.cc).
  const int64_t warp_rows = tile[link.warp_rows];
  LoopList lanes, low_lanes;
  const auto deal = [&](const LoopRef& axis, const AxisTile& t, int64_t in_warp) {
    LoopList parts;
    if (warp_rows == 1) {
      parts = w.Split(axis, {t.lanes, t.elements});
    } else {
      const int64_t low = std::min<int64_t>(2, in_warp);
      parts = w.Split(axis, {t.lanes / in_warp, in_warp / low, low, t.elements});
      lanes.push_back(parts[2]);
      low_lanes.push_back(parts[3]);
    }
    nest.elements.push_back(parts.back());
    return parts;
  };
  for (size_t a = 0; a < axes.size(); ++a) {
    if (a == link.column()) {
      const int64_t in_warp = std::min(tile.axes[a].lanes, kWarpThreads / warp_rows);
      const LoopList parts = deal(axes[a], tile.axes[a], in_warp);
      round = parts[0];
      nest.threads.push_back(parts[1]);
    } else if (link.link.row == a) {
      const LoopList parts = deal(axes[a], tile.axes[a], warp_rows);
      rounds.push_back(parts[0]);  // one
      nest.threads.insert(nest.threads.begin(), parts[1]);
    } else {
      rounds.push_back(axes[a]);
    }
  }
  rounds.push_back(round);
  const int64_t vector = link.column() + 1 == axes.size()
                             ? WidestVector(tile.axes[link.column()].elements, result.tensor->dtype)
                             : 1;
  if (vector > 1) {
    const auto [outer, run] = w.Split(nest.elements.back(), vector);
    nest.elements.back() = outer;
    nest.elements.push_back(run);
  }
  nest.threads = Join({nest.threads, lanes, low_lanes});
  w.Reorder(Join({rounds, nest.threads, nest.elements}));
  nest.thread = w.Fuse(nest.threads);
  w.Bind(nest.thread, BindTo::kThread);
  if (vector > 1) w.Vectorize(nest.elements.back());
  nest.tiles = round;
  link.decisions->WriteReduction(tile, nest);
}

void ChainPlan::WriteStatistic(ScheduleWriter& w, const ChainLink& link, const Tile& root,
                               const LoopRef& thread) const {
  const int64_t lanes = LanesOf(link, RowsOf(root), root.Threads());
  const auto parts = w.Split(w.Fuse(w.ReduceLoops(link.reduction)), lanes, link.vector);
  const StageRef part = w.Rfactor(parts[1]);
  const StageRef shared = w.CacheRead(part.tensor, Scope::kShared, link.reduction);
  w.SetScope(link.result, Scope::kShared);
  w.ComputeAt(link.result, thread);
  const LoopRef row = w.Fuse(w.Loops(link.result));
  w.Bind(row, BindTo::kThread);
  w.SetScope(link.reduction, Scope::kLocal);
  w.ComputeAt(link.reduction, row);
  w.ComputeAt(shared, thread);
  LoopList loops = w.Loops(shared);
  std::rotate(loops.begin(), loops.begin() + 1, loops.end());
  w.Reorder(loops);
  const LoopRef lane = w.Fuse(loops);
  w.Bind(lane, BindTo::kThread);
  w.SetScope(part, Scope::kLocal);
  w.ComputeAt(part, lane);
  if (link.vector == 1) return;
  const LoopRef runs = w.ReduceLoops(part)[0];
  for (const BufferRef& tensor : link.runs) {
    const StageRef run = w.CacheRead(tensor, Scope::kLocal, part);
    w.ComputeAt(run, runs);
    w.Vectorize(w.Loops(run).back());
  }
}

std::unique_ptr<KernelPlan> PlanChain(const ProgramShape& shape, const KernelShape& kernel,
                                      const Target& target) {
  auto chain = FindChain(shape, kernel, target);
  if (!chain.has_value()) return nullptr;
  return std::make_unique<ChainPlan>(*std::move(chain));
}

}  // namespace

const SketchRule kChainRule = {.name = "chain", .apply = PlanChain, .takes_fused_kernels = true};

}  // namespace heddle::search_space
