// Products of matrices of 16-bit numbers, or of tf32, on the units that multiply small matrices.
//
// A warp makes a part of a block's tile of the result, which its lanes hold together as the
// instruction lays it out. It reads its rows and columns of a step of 16 (8 of tf32) along the
// reduction from the tiles in shared memory, several of which are on their way at once, and
// multiplies them all with one another. What the kernel does with the sums is computed where they
// lie.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/sketch/matrix/matrix_plan.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

class WarpPlan : public MatrixPlan {
 public:
  static constexpr bool kInWarpgroups = false;

  explicit WarpPlan(MatrixKernel kernel) : MatrixPlan(std::move(kernel)) {
    // In the order in which they are drawn. The first value of each takes least.
    Add("swap", Swaps(), 0);
    Add("m.warps", {1, 2, 4, 8}, 0);
    Add("n.warps", {1, 2, 4, 8}, 0);
    Add("m.tiles", {1, 2, 3, 4, 6, 8}, 0);
    Add("n.tiles", Columns({1, 2, 3, 4, 6, 8, 12, 16}, ShapeOf(Instruction()).n), 0);
    Add("k.steps", {1, 2, 4, 8}, 1);
    Add("split_k", Parts(), 1);
    // A factor that is computed is stored where the other one's copies begin.
    const bool copies = kernel_.factors[0].is_copied || kernel_.factors[1].is_copied;
    Add("pipeline", copies ? std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6} : std::vector<int64_t>{0, 1},
        2);
    Add("prefetch", {0, 1}, 2);
    Add("block_swizzle", {1, 2, 4, 8, 16}, 3);
    Add("min_blocks", {0, 1, 2, 3}, 3);
    Add("staged", Stagings(), 0);
  }

  absl::Status Check(HoleValues values) const override {
    HEDDLE_RETURN_IF_ERROR(CheckTile(TileOf(values), kMostAccumulators));
    if (values[kAhead] != 0 && (values[kPipeline] == 0 || values[kSteps] % 2 != 0)) {
      return kernel_.kernel.Refuse(
          "registers run ahead through an even number of steps of a pipeline");
    }
    return absl::OkStatus();
  }

 protected:
  MatrixTile TileOf(HoleValues v) const override {
    const MatrixShape& shape = ShapeOf(Instruction());
    MatrixTile t{.kernel = kernel_, .a = v[kSwap] != 0 ? 1u : 0u, .step = shape.k};
    t.unit[t.a] = shape.m;
    t.unit[1 - t.a] = shape.n;
    t.block[t.a] = shape.m * v[kRowTiles] * v[kRowWarps];
    t.block[1 - t.a] = shape.n * v[kColTiles] * v[kColWarps];
    t.depth = shape.k * v[kSteps];
    t.threads = FragmentLayout::kWarpLanes * v[kRowWarps] * v[kColWarps];
    t.accumulators =
        v[kRowTiles] * v[kColTiles] * kernel_.Places() * shape.Layout(MatrixOperand::kD).elements();
    const int64_t buffers = v[kPipeline] == 0 ? 1 : std::max<int64_t>(2, v[kPipeline]);
    for (size_t i = 0; i < 2; ++i) {
      t.shared_bytes += RoundUp(t.Elements(i) * SizeOf(kernel_.Type()), 128) * buffers;
    }
    const int64_t fragments = v[kRowTiles] * 4 * kernel_.factors[t.a].Parts() +
                              v[kColTiles] * 2 * kernel_.factors[1 - t.a].Parts();
    t.registers = kOtherRegisters + t.accumulators + fragments * (1 + v[kAhead]) +
                  (v[kPipeline] == 1 ? t.Staged() : 0);
    t.parts = v[kParts];
    t.raster = v[kRaster];
    t.min_blocks = v[kBlocks];
    t.is_staged = v[kStaged] != 0;
    t.AddResult();
    return t;
  }

  bool IsLikely(size_t hole, HoleValues v, bool may_split) const override {
    switch (hole) {
      case kSwap:
        return (v[kSwap] != 0) == (kernel_.Extent(0) < kernel_.Extent(1) && kernel_.Extent(0) < 16);
      case kColWarps:
        return v[kRowWarps] * v[kColWarps] == 4 || v[kRowWarps] * v[kColWarps] == 8;
      case kRowTiles:
        return v[kRowTiles] >= 2 && v[kRowTiles] <= 4;
      case kColTiles:
        return TileOf(v).accumulators >= 32;
      case kSteps:
        return v[kSteps] >= 2 && v[kSteps] <= 4;
      case kParts:
        return v[kParts] == 1 || may_split;
      case kPipeline:
        return v[kPipeline] >= 3;
      default:
        return true;
    }
  }

  void Write(ScheduleWriter& w, HoleValues values) const override;

 private:
  static constexpr int64_t kOtherRegisters = 40;  // addresses, loop counters, temporaries
  static constexpr int64_t kMostAccumulators = 128;

  enum HoleNumber : uint8_t {
    kSwap,      // 1: the first factor is B, whose tiles are of 8
    kRowWarps,  // warps along the rows, and the columns, of the result
    kColWarps,
    kRowTiles,  // of a warp
    kColTiles,
    kSteps,     // of an instruction along the reduction, in a tile in shared memory
    kParts,     // of the reduction, over blocks
    kPipeline,  // 0: none, 1: through registers, more: copies, in so many buffers
    kAhead,     // are the fragments of the next step read beside the products of one?
    kRaster,
    kBlocks,
    kStaged  // 1: the result is stored from shared memory
  };

  MatrixInstruction Instruction() const { return WarpInstruction(kernel_.Type()); }
};

void WarpPlan::Write(ScheduleWriter& w, HoleValues values) const {
  const MatrixTile t = TileOf(values);
  const MatrixShape& shape = ShapeOf(Instruction());
  const size_t rows = kernel_.factors[t.a].own, cols = kernel_.factors[1 - t.a].own;
  const Begun begun = Begin(w, t);
  const StageRef& sum = begun.sum;
  // Blocks, warps and lanes, and what each lane holds.
  const auto result = SplitResult(w, t, begun, {values[kRowWarps], values[kRowTiles], 2, 8},
                                  {values[kColWarps], values[kColTiles], 4, 2});
  const LoopList &row = result.row, &col = result.col;
  BindResult(w, t, begun, result, {row[1], col[1], row[4], col[3]},
             {row[2], row[3], col[2], col[4]}, Instruction());

  // The sums: tiles, steps, and the matrices of a step.
  LoopList loops = w.DataLoops(sum);
  const size_t first = FirstAxis(loops.size());
  const auto [tiles, step, k16, parts] = SplitDepth(w, sum, values[kSteps], shape.k);
  const auto [row_tiles, m16] = w.Split(loops[first + rows], shape.m);
  const auto [col_tiles, n8] = w.Split(loops[first + cols], shape.n);
  loops[first + rows] = row_tiles;
  loops[first + cols] = col_tiles;
  w.Reorder(Join({{tiles, step}, parts, loops, {m16, n8, k16}}));
  w.Tensorize(sum, m16, n8, k16);
  if (values[kAhead] == 0) w.Unroll(step);
  for (size_t i = 0; i < 2; ++i) {
    const StageRef& tile = begun.factors[i];
    kernel_.factors[i].WriteTile(w, tile, t.threads, tiles);
    WriteFragment(w, sum, tile, first + kernel_.factors[i].own, kernel_.depth, Instruction(),
                  i == t.a ? MatrixOperand::kA : MatrixOperand::kB, step);
  }
  if (values[kPipeline] != 0) {
    const bool copies = values[kPipeline] > 1;
    w.Pipeline(tiles, copies ? PipelineKind::kAsyncCopy : PipelineKind::kRegisters,
               copies ? values[kPipeline] : 2);
  }
  if (values[kAhead] != 0) w.Pipeline(step, PipelineKind::kRegisters, 2);
}

}  // namespace

const SketchRule kMatrixRule = MatrixRule<WarpPlan, Stored::kElements>("matrix");
const SketchRule kMatrixRowPartsRule = MatrixRule<WarpPlan, Stored::kRowParts>("matrix_rows");
const SketchRule kMatrixPlacesRule = MatrixRule<WarpPlan, Stored::kOfPlaces>("matrix_places");

}  // namespace heddle::search_space
