// Products of matrices of 16-bit numbers, or of tf32, by instructions of warpgroups.
//
// Four warps make a part of a block's tile of the result, which their lanes hold together as the
// instruction lays it out. The instruction reads its operands from the tiles in shared memory
// itself, while the threads start the copies of further tiles. What the kernel does with the sums
// is computed where they lie.
#include <algorithm>
#include <utility>

#include "search_space/ir/stmt.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/sketch/matrix/matrix_plan.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

class WarpgroupPlan : public MatrixPlan {
 public:
  static constexpr bool kInWarpgroups = true;

  explicit WarpgroupPlan(MatrixKernel kernel) : MatrixPlan(std::move(kernel)) {}

  absl::Status Check(HoleValues values) const override {
    if (values[in_flight_] > 0 && values[pipeline_] < 3) {
      return kernel_.kernel.Refuse("products in flight take a third buffer of copies");
    }
    if (values[bulk_] > 0 && values[pipeline_] < 2) {
      return kernel_.kernel.Refuse("bulk copies take a second buffer");
    }
    if (values[persist_] > 0 && values[bulk_] == 0) {
      return kernel_.kernel.Refuse("blocks stay where bulk copies fetch for the next tile");
    }
    return CheckTile(TileOf(values), kMostAccumulators);
  }

 protected:
  MatrixTile TileOf(HoleValues v) const override {
    const MatrixShape& shape = ShapeOf(InstructionOf(v));
    MatrixTile t{.kernel = kernel_, .a = v[swap_] != 0 ? 1u : 0u, .step = shape.k};
    t.unit[t.a] = shape.m;
    t.unit[1 - t.a] = shape.n;
    t.block[t.a] = shape.m * v[row_tiles_] * v[row_groups_];
    t.block[1 - t.a] = shape.n * v[col_groups_];
    t.depth = shape.k * v[steps_];
    t.threads = kWarpgroupThreads * v[row_groups_] * v[col_groups_];
    t.accumulators = v[row_tiles_] * kernel_.Places() * shape.Layout(MatrixOperand::kD).elements();
    const int64_t buffers = std::max<int64_t>(2, v[pipeline_]);
    if (v[bulk_] > 0) t.shared_bytes = buffers * SizeOf(DType::kInt64);  // the phases
    for (size_t i = 0; i < 2; ++i) {
      const int64_t align = SharedMatrix::Alignment(BlockOf(t, i), kernel_.Type());
      t.shared_bytes = RoundUp(t.shared_bytes, align) + t.Bytes(i) * buffers;
    }
    t.registers = kOtherRegisters + t.accumulators + (v[pipeline_] == 1 ? t.Staged() : 0);
    t.parts = v[parts_];
    t.raster = v[raster_];
    t.min_blocks = v[blocks_];
    t.is_bulk = v[bulk_] != 0;
    t.is_staged = v[staged_] != 0;
    t.buffers = buffers;
    if (v[persist_] > 0) t.ahead = buffers - 1 - v[in_flight_];
    t.AddResult();
    return t;
  }

  bool IsLikely(HoleId hole, HoleValues v, bool may_split) const override {
    const MatrixTile t = TileOf(v);
    if (hole == swap_) {
      return (v[swap_] != 0) == (kernel_.Extent(0) < kernel_.Extent(1) && kernel_.Extent(0) < 64);
    }
    if (hole == col_groups_) return t.threads <= 256;
    if (hole == row_tiles_) return v[row_tiles_] <= 2;
    if (hole == columns_) {
      return t.accumulators >= 64 || t.block[1 - t.a] * 2 > kernel_.Extent(1 - t.a);
    }
    if (hole == steps_) return v[steps_] == 4;
    if (hole == parts_) return v[parts_] == 1 || may_split;
    if (hole == pipeline_) return v[pipeline_] == 1 || v[pipeline_] >= 3;
    if (hole == bulk_) return v[bulk_] == 1;
    if (hole == persist_) return v[persist_] == 0 || v[parts_] == 1;
    return true;
  }

  void Write(ScheduleWriter& w, HoleValues values) const override;

 private:
  static constexpr int64_t kMostAccumulators = 192;

  MatrixInstruction InstructionOf(HoleValues values) const {
    for (MatrixInstruction instruction : WarpgroupInstructions(kernel_.Type())) {
      if (ShapeOf(instruction).n == values[columns_]) return instruction;
    }
    return WarpgroupInstructions(kernel_.Type())[0];
  }

  // Elements of a line of a factor's tiles.
  int64_t BlockOf(const MatrixTile& t, size_t i) const {
    return SharedMatrix::LongestSpanOf(kernel_.IsAlongOwn(i) ? t.unit[i] : t.depth, kernel_.Type());
  }

  std::vector<int64_t> ColumnsOfInstructions() const {
    std::vector<int64_t> columns;
    for (MatrixInstruction instruction : WarpgroupInstructions(kernel_.Type())) {
      // A line of the narrowest holds twice its columns.
      const bool fits = SharedMatrix::LongestSpanOf(ShapeOf(instruction).n, kernel_.Type()) > 0 ||
                        !(kernel_.IsAlongOwn(0) || kernel_.IsAlongOwn(1));
      if (fits) columns.push_back(ShapeOf(instruction).n);
    }
    return columns;
  }
  std::vector<int64_t> Pipelines() const {
    if (!kernel_.IsCopied() && (!kernel_.IsBoxed() || kernel_.over)) return {1};
    return {2, 3, 4, 5, 6, 7, 8};
  }
  // What only bulk copies fetch in the background leaves no choice.
  std::vector<int64_t> BulkCopies() const {
    std::vector<int64_t> bulk;
    if (!kernel_.IsBoxed() || kernel_.IsCopied() || kernel_.over) bulk.push_back(0);
    // A pipeline of these begins once in a kernel, or with each of its blocks' tiles.
    if (kernel_.IsBoxed() && !kernel_.over) bulk.push_back(1);
    return bulk;
  }

  // In the order in which they are drawn. The first value of each takes least.
  // 1: the first factor is B.
  const HoleId swap_ = AddHole("swap", Swaps(), 0);
  // Warpgroups along the rows, and the columns, of the result, and tiles of a warpgroup.
  const HoleId row_groups_ = AddHole("m.groups", {1, 2, 4}, 0);
  const HoleId col_groups_ = AddHole("n.groups", {1, 2}, 0);
  const HoleId row_tiles_ = AddHole("m.tiles", {1, 2, 3}, 0);
  // Of an instruction.
  const HoleId columns_ = AddHole("columns", Columns(ColumnsOfInstructions(), 1), 0);
  // Of an instruction along the reduction, in a tile in shared memory.
  const HoleId steps_ = AddHole("k.steps", {1, 2, 4, 8}, 1);
  // Of the reduction, over blocks.
  const HoleId parts_ = AddHole("split_k", Parts(), 1);
  // 1: through registers, more: copies, in so many buffers.
  const HoleId pipeline_ = AddHole("pipeline", Pipelines(), 2);
  // Tiles whose products go on beside those of the next.
  const HoleId in_flight_ = AddHole("in_flight", {0, 1}, 2);
  const HoleId raster_ = AddHole("block_swizzle", {1, 2, 4, 8, 16}, 3);
  const HoleId blocks_ = AddHole("min_blocks", {0, 1, 2, 3}, 3);
  // 1: copies are boxes of the tensors.
  const HoleId bulk_ = AddHole("bulk", BulkCopies(), 2);
  // 1: the result is stored from shared memory.
  const HoleId staged_ = AddHole("staged", OnlyIf(kernel_.may_stage), 0);
  // 1: blocks compute one tile after another.
  const HoleId persist_ =
      AddHole("persist", OnlyIf(kernel_.IsBoxed() && !kernel_.row_parts && !kernel_.over), 3);
};

void WarpgroupPlan::Write(ScheduleWriter& w, HoleValues values) const {
  const MatrixTile t = TileOf(values);
  const MatrixInstruction instruction = InstructionOf(values);
  const MatrixShape& shape = ShapeOf(instruction);
  const size_t rows = kernel_.factors[t.a].own, cols = kernel_.factors[1 - t.a].own;
  const Begun begun = Begin(w, t);
  const StageRef& sum = begun.sum;
  // Blocks, warpgroups, their warps and lanes, and what each lane holds.
  const auto result = SplitResult(w, t, begun, {values[row_groups_], values[row_tiles_], 4, 2, 8},
                                  {values[col_groups_], shape.n / 8, 4, 2});
  const LoopList &row = result.row, &col = result.col;
  BindResult(w, t, begun, result, {row[1], col[1], row[3], row[5], col[3]},
             {row[2], row[4], col[2], col[4]}, instruction);

  // The sums: tiles, steps, and the matrices of a step.
  LoopList loops = w.DataLoops(sum);
  const size_t first = FirstAxis(loops.size());
  const auto [tiles, step, k16, parts] = SplitDepth(w, sum, values[steps_], shape.k);
  const auto [row_tiles, m64] = w.Split(loops[first + rows], shape.m);
  const LoopRef n = loops[first + cols];
  loops[first + rows] = row_tiles;
  loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(first + cols));
  w.Reorder(Join({{tiles, step}, parts, loops, {m64, n, k16}}));
  w.Tensorize(sum, m64, n, k16);
  w.Unroll(step);
  for (size_t i = 0; i < 2; ++i) {
    kernel_.factors[i].WriteLines(w, begun.factors[i], t.threads, tiles, BlockOf(t, i));
  }
  const bool copies = values[pipeline_] > 1;
  w.Pipeline(tiles,
             values[bulk_] > 0 ? PipelineKind::kBulkCopy
             : copies          ? PipelineKind::kAsyncCopy
                               : PipelineKind::kRegisters,
             copies ? values[pipeline_] : 2);
  if (values[in_flight_] > 0) w.InFlight(sum, values[in_flight_]);
}

}  // namespace

const SketchRule kWarpgroupRule = MatrixRule<WarpgroupPlan, Stored::kElements>("warpgroup");
const SketchRule kWarpgroupRowPartsRule =
    MatrixRule<WarpgroupPlan, Stored::kRowParts>("warpgroup_rows");
const SketchRule kWarpgroupReducedRule =
    MatrixRule<WarpgroupPlan, Stored::kReduced>("warpgroup_reduced");
const SketchRule kWarpgroupPlacesRule =
    MatrixRule<WarpgroupPlan, Stored::kOfPlaces>("warpgroup_places");

}  // namespace heddle::search_space
