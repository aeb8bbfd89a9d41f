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

  explicit WarpgroupPlan(MatrixKernel kernel) : MatrixPlan(std::move(kernel)) {
    std::vector<int64_t> columns;
    for (MatrixInstruction instruction : WarpgroupInstructions(kernel_.Type())) {
      // A line of the narrowest holds twice its columns.
      const bool fits = SharedMatrix::LongestSpanOf(ShapeOf(instruction).n, kernel_.Type()) > 0 ||
                        !(kernel_.IsAlongOwn(0) || kernel_.IsAlongOwn(1));
      if (fits) columns.push_back(ShapeOf(instruction).n);
    }
    // In the order in which they are drawn. The first value of each takes least.
    Add("swap", Swaps(), 0);
    Add("m.groups", {1, 2, 4}, 0);
    Add("n.groups", {1, 2}, 0);
    Add("m.tiles", {1, 2, 3}, 0);
    Add("columns", Columns(std::move(columns), 1), 0);
    Add("k.steps", {1, 2, 4, 8}, 1);
    Add("split_k", Parts(), 1);
    const bool copies = kernel_.IsCopied() || kernel_.IsBoxed();
    Add("pipeline", copies ? std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8} : std::vector<int64_t>{1},
        2);
    Add("in_flight", {0, 1}, 2);
    Add("block_swizzle", {1, 2, 4, 8, 16}, 3);
    Add("min_blocks", {0, 1, 2, 3}, 3);
    // What only bulk copies fetch in the background leaves no choice.
    std::vector<int64_t> bulk;
    if (!kernel_.IsBoxed() || kernel_.IsCopied()) bulk.push_back(0);
    if (kernel_.IsBoxed()) bulk.push_back(1);
    Add("bulk", std::move(bulk), 2);
    Add("staged", Stagings(), 0);
    const bool may_stay = kernel_.IsBoxed() && !kernel_.row_parts;
    Add("persist", may_stay ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}, 3);
  }

  absl::Status Check(HoleValues values) const override {
    if (values[kInFlight] > 0 && values[kPipeline] < 3) {
      return kernel_.kernel.Refuse("products in flight take a third buffer of copies");
    }
    if (values[kBulk] > 0 && values[kPipeline] < 2) {
      return kernel_.kernel.Refuse("bulk copies take a second buffer");
    }
    if (values[kPersist] > 0 && values[kBulk] == 0) {
      return kernel_.kernel.Refuse("blocks stay where bulk copies fetch for the next tile");
    }
    return CheckTile(TileOf(values), kMostAccumulators);
  }

 protected:
  MatrixTile TileOf(HoleValues v) const override {
    const MatrixShape& shape = ShapeOf(InstructionOf(v));
    MatrixTile t{.kernel = kernel_, .a = v[kSwap] != 0 ? 1u : 0u, .step = shape.k};
    t.unit[t.a] = shape.m;
    t.unit[1 - t.a] = shape.n;
    t.block[t.a] = shape.m * v[kRowTiles] * v[kRowGroups];
    t.block[1 - t.a] = shape.n * v[kColGroups];
    t.depth = shape.k * v[kSteps];
    t.threads = kWarpgroupThreads * v[kRowGroups] * v[kColGroups];
    t.accumulators = v[kRowTiles] * kernel_.Places() * shape.Layout(MatrixOperand::kD).elements();
    const int64_t buffers = std::max<int64_t>(2, v[kPipeline]);
    if (v[kBulk] > 0) t.shared_bytes = buffers * SizeOf(DType::kInt64);  // the phases
    for (size_t i = 0; i < 2; ++i) {
      const int64_t align = SharedMatrix::Alignment(BlockOf(t, i), kernel_.Type());
      t.shared_bytes = RoundUp(t.shared_bytes, align) + t.Bytes(i) * buffers;
    }
    t.registers = kOtherRegisters + t.accumulators + (v[kPipeline] == 1 ? t.Staged() : 0);
    t.parts = v[kParts];
    t.raster = v[kRaster];
    t.min_blocks = v[kBlocks];
    t.is_bulk = v[kBulk] != 0;
    t.is_staged = v[kStaged] != 0;
    t.buffers = buffers;
    if (v[kPersist] > 0) t.ahead = buffers - 1 - v[kInFlight];
    t.AddResult();
    return t;
  }

  bool IsLikely(size_t hole, HoleValues v, bool may_split) const override {
    const MatrixTile t = TileOf(v);
    switch (hole) {
      case kSwap:
        return (v[kSwap] != 0) == (kernel_.Extent(0) < kernel_.Extent(1) && kernel_.Extent(0) < 64);
      case kColGroups:
        return t.threads <= 256;
      case kRowTiles:
        return v[kRowTiles] <= 2;
      case kColumns:
        return t.accumulators >= 64 || t.block[1 - t.a] * 2 > kernel_.Extent(1 - t.a);
      case kSteps:
        return v[kSteps] == 4;
      case kParts:
        return v[kParts] == 1 || may_split;
      case kPipeline:
        return v[kPipeline] == 1 || v[kPipeline] >= 3;
      case kBulk:
        return v[kBulk] == 1;
      case kPersist:
        return v[kPersist] == 0 || v[kParts] == 1;
      default:
        return true;
    }
  }

  void Write(ScheduleWriter& w, HoleValues values) const override;

 private:
  static constexpr int64_t kOtherRegisters = 40;  // addresses, loop counters, temporaries
  static constexpr int64_t kMostAccumulators = 192;

  enum HoleNumber : uint8_t {
    kSwap,       // 1: the first factor is B
    kRowGroups,  // warpgroups along the rows, and the columns, of the result
    kColGroups,
    kRowTiles,  // of a warpgroup
    kColumns,   // of an instruction
    kSteps,     // of an instruction along the reduction, in a tile in shared memory
    kParts,     // of the reduction, over blocks
    kPipeline,  // 1: through registers, more: copies, in so many buffers
    kInFlight,  // tiles whose products go on beside those of the next
    kRaster,
    kBlocks,
    kBulk,    // 1: copies are boxes of the tensors
    kStaged,  // 1: the result is stored from shared memory
    kPersist  // 1: blocks compute one tile after another
  };

  MatrixInstruction InstructionOf(HoleValues values) const {
    for (MatrixInstruction instruction : WarpgroupInstructions(kernel_.Type())) {
      if (ShapeOf(instruction).n == values[kColumns]) return instruction;
    }
    return WarpgroupInstructions(kernel_.Type())[0];
  }

  // Elements of a line of a factor's tiles.
  int64_t BlockOf(const MatrixTile& t, size_t i) const {
    return SharedMatrix::LongestSpanOf(kernel_.IsAlongOwn(i) ? t.unit[i] : t.depth, kernel_.Type());
  }
};

void WarpgroupPlan::Write(ScheduleWriter& w, HoleValues values) const {
  const MatrixTile t = TileOf(values);
  const MatrixInstruction instruction = InstructionOf(values);
  const MatrixShape& shape = ShapeOf(instruction);
  const size_t rows = kernel_.factors[t.a].own, cols = kernel_.factors[1 - t.a].own;
  const Begun begun = Begin(w, t);
  const StageRef& sum = begun.sum;
  // Blocks, warpgroups, their warps and lanes, and what each lane holds.
  const auto result = SplitResult(w, t, begun, {values[kRowGroups], values[kRowTiles], 4, 2, 8},
                                  {values[kColGroups], shape.n / 8, 4, 2});
  const LoopList &row = result.row, &col = result.col;
  BindResult(w, t, begun, result, {row[1], col[1], row[3], row[5], col[3]},
             {row[2], row[4], col[2], col[4]}, instruction);

  // The sums: tiles, steps, and the matrices of a step.
  LoopList loops = w.DataLoops(sum);
  const size_t first = FirstAxis(loops.size());
  const auto [tiles, step, k16, parts] = SplitDepth(w, sum, values[kSteps], shape.k);
  const auto [row_tiles, m64] = w.Split(loops[first + rows], shape.m);
  const LoopRef n = loops[first + cols];
  loops[first + rows] = row_tiles;
  loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(first + cols));
  w.Reorder(Join({{tiles, step}, parts, loops, {m64, n, k16}}));
  w.Tensorize(sum, m64, n, k16);
  w.Unroll(step);
  for (size_t i = 0; i < 2; ++i) {
    kernel_.WriteLines(w, i, begun.factors[i], t.threads, tiles, BlockOf(t, i));
  }
  const bool copies = values[kPipeline] > 1;
  w.Pipeline(tiles,
             values[kBulk] > 0 ? PipelineKind::kBulkCopy
             : copies          ? PipelineKind::kAsyncCopy
                               : PipelineKind::kRegisters,
             copies ? values[kPipeline] : 2);
  if (values[kInFlight] > 0) w.InFlight(sum, values[kInFlight]);
}

}  // namespace

const SketchRule kWarpgroupRule = MatrixRule<WarpgroupPlan, Stored::kElements>("warpgroup");
const SketchRule kWarpgroupRowPartsRule =
    MatrixRule<WarpgroupPlan, Stored::kRowParts>("warpgroup_rows");
const SketchRule kWarpgroupPlacesRule =
    MatrixRule<WarpgroupPlan, Stored::kOfPlaces>("warpgroup_places");

}  // namespace heddle::search_space
