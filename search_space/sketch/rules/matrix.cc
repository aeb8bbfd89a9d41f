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

  explicit WarpPlan(MatrixKernel kernel) : MatrixPlan(std::move(kernel)) {}

  absl::Status Check(HoleValues values) const override {
    HEDDLE_RETURN_IF_ERROR(CheckTile(TileOf(values), kMostAccumulators));
    if (values[ahead_] != 0 && (values[pipeline_] == 0 || values[steps_] % 2 != 0)) {
      return kernel_.kernel.Refuse(
          "registers run ahead through an even number of steps of a pipeline");
    }
    return absl::OkStatus();
  }

 protected:
  MatrixTile TileOf(HoleValues v) const override {
    const MatrixShape& shape = ShapeOf(Instruction());
    MatrixTile t{.kernel = kernel_, .a = v[swap_] != 0 ? 1u : 0u, .step = shape.k};
    t.unit[t.a] = shape.m;
    t.unit[1 - t.a] = shape.n;
    t.block[t.a] = shape.m * v[row_tiles_] * v[row_warps_];
    t.block[1 - t.a] = shape.n * v[col_tiles_] * v[col_warps_];
    t.depth = shape.k * v[steps_];
    t.threads = FragmentLayout::kWarpLanes * v[row_warps_] * v[col_warps_];
    t.accumulators = v[row_tiles_] * v[col_tiles_] * kernel_.Places() *
                     shape.Layout(MatrixOperand::kD).elements();
    const int64_t buffers = v[pipeline_] == 0 ? 1 : std::max<int64_t>(2, v[pipeline_]);
    for (size_t i = 0; i < 2; ++i) {
      t.shared_bytes += RoundUp(t.Elements(i) * SizeOf(kernel_.Type()), 128) * buffers;
    }
    const int64_t fragments = v[row_tiles_] * 4 * kernel_.factors[t.a].Parts() +
                              v[col_tiles_] * 2 * kernel_.factors[1 - t.a].Parts();
    t.registers = kOtherRegisters + t.accumulators + fragments * (1 + v[ahead_]) +
                  (v[pipeline_] == 1 ? t.Staged() : 0);
    t.parts = v[parts_];
    t.raster = v[raster_];
    t.min_blocks = v[blocks_];
    t.is_staged = v[staged_] != 0;
    t.AddResult();
    return t;
  }

  bool IsLikely(HoleId hole, HoleValues v, bool may_split) const override {
    if (hole == swap_) {
      return (v[swap_] != 0) == (kernel_.Extent(0) < kernel_.Extent(1) && kernel_.Extent(0) < 16);
    }
    if (hole == col_warps_) {
      return v[row_warps_] * v[col_warps_] == 4 || v[row_warps_] * v[col_warps_] == 8;
    }
    if (hole == row_tiles_) return v[row_tiles_] >= 2 && v[row_tiles_] <= 4;
    if (hole == col_tiles_) return TileOf(v).accumulators >= 32;
    if (hole == steps_) return v[steps_] >= 2 && v[steps_] <= 4;
    if (hole == parts_) return v[parts_] == 1 || may_split;
    if (hole == pipeline_) return v[pipeline_] >= 3;
    return true;
  }

  void Write(ScheduleWriter& w, HoleValues values) const override;

 private:
  static constexpr int64_t kMostAccumulators = 128;

  MatrixInstruction Instruction() const { return WarpInstruction(kernel_.Type()); }
  // A factor that is computed is stored where the other one's copies begin.
  std::vector<int64_t> Pipelines() const {
    if (!kernel_.factors[0].is_copied && !kernel_.factors[1].is_copied) return {0, 1};
    return {0, 1, 2, 3, 4, 5, 6};
  }

  // In the order in which they are drawn. The first value of each takes least.
  // 1: the first factor is B, whose tiles are of 8.
  const HoleId swap_ = AddHole("swap", Swaps(), 0);
  // Warps along the rows, and the columns, of the result, and tiles of a warp.
  const HoleId row_warps_ = AddHole("m.warps", {1, 2, 4, 8}, 0);
  const HoleId col_warps_ = AddHole("n.warps", {1, 2, 4, 8}, 0);
  const HoleId row_tiles_ = AddHole("m.tiles", {1, 2, 3, 4, 6, 8}, 0);
  const HoleId col_tiles_ =
      AddHole("n.tiles", Columns({1, 2, 3, 4, 6, 8, 12, 16}, ShapeOf(Instruction()).n), 0);
  // Of an instruction along the reduction, in a tile in shared memory.
  const HoleId steps_ = AddHole("k.steps", {1, 2, 4, 8}, 1);
  // Of the reduction, over blocks.
  const HoleId parts_ = AddHole("split_k", Parts(), 1);
  // 0: none, 1: through registers, more: copies, in so many buffers.
  const HoleId pipeline_ = AddHole("pipeline", Pipelines(), 2);
  // Are the fragments of the next step read beside the products of one?
  const HoleId ahead_ = AddHole("prefetch", {0, 1}, 2);
  const HoleId raster_ = AddHole("block_swizzle", {1, 2, 4, 8, 16}, 3);
  const HoleId blocks_ = AddHole("min_blocks", {0, 1, 2, 3}, 3);
  // 1: the result is stored from shared memory.
  const HoleId staged_ = AddHole("staged", OnlyIf(kernel_.may_stage), 0);
};

void WarpPlan::Write(ScheduleWriter& w, HoleValues values) const {
  const MatrixTile t = TileOf(values);
  const MatrixShape& shape = ShapeOf(Instruction());
  const size_t rows = kernel_.factors[t.a].own, cols = kernel_.factors[1 - t.a].own;
  const Begun begun = Begin(w, t);
  const StageRef& sum = begun.sum;
  // Blocks, warps and lanes, and what each lane holds.
  const auto result = SplitResult(w, t, begun, {values[row_warps_], values[row_tiles_], 2, 8},
                                  {values[col_warps_], values[col_tiles_], 4, 2});
  const LoopList &row = result.row, &col = result.col;
  BindResult(w, t, begun, result, {row[1], col[1], row[4], col[3]},
             {row[2], row[3], col[2], col[4]}, Instruction());

  // The sums: tiles, steps, and the matrices of a step.
  LoopList loops = w.DataLoops(sum);
  const size_t first = FirstAxis(loops.size());
  const auto [tiles, step, k16, parts] = SplitDepth(w, sum, values[steps_], shape.k);
  const auto [row_tiles, m16] = w.Split(loops[first + rows], shape.m);
  const auto [col_tiles, n8] = w.Split(loops[first + cols], shape.n);
  loops[first + rows] = row_tiles;
  loops[first + cols] = col_tiles;
  w.Reorder(Join({{tiles, step}, parts, loops, {m16, n8, k16}}));
  w.Tensorize(sum, m16, n8, k16);
  if (values[ahead_] == 0) w.Unroll(step);
  for (size_t i = 0; i < 2; ++i) {
    const StageRef& tile = begun.factors[i];
    kernel_.factors[i].WriteTile(w, tile, t.threads, tiles);
    WriteFragment(w, sum, tile, first + kernel_.factors[i].own, kernel_.depth, Instruction(),
                  i == t.a ? MatrixOperand::kA : MatrixOperand::kB, step);
  }
  if (values[pipeline_] != 0) {
    const bool copies = values[pipeline_] > 1;
    w.Pipeline(tiles, copies ? PipelineKind::kAsyncCopy : PipelineKind::kRegisters,
               copies ? values[pipeline_] : 2);
  }
  if (values[ahead_] != 0) w.Pipeline(step, PipelineKind::kRegisters, 2);
}

}  // namespace

const SketchRule kMatrixRule = MatrixRule<WarpPlan, Stored::kElements>("matrix");
const SketchRule kMatrixRowPartsRule = MatrixRule<WarpPlan, Stored::kRowParts>("matrix_rows");
const SketchRule kMatrixReducedRule = MatrixRule<WarpPlan, Stored::kReduced>("matrix_reduced");
const SketchRule kMatrixPlacesRule = MatrixRule<WarpPlan, Stored::kOfPlaces>("matrix_places");

}  // namespace heddle::search_space
