// What plans for products of matrices of narrow numbers have in common, whichever instructions
// multiply: a block makes a tile of the result, from tiles of both operands in shared memory.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_PLAN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_PLAN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/operands.h"
#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/kernels/rule.h"
#include "search_space/sketch/tiling/tiled_kernel.h"

namespace heddle::search_space {

// One of the two matrices, as it is read.
struct Factor {
  Operand operand;
  std::vector<size_t> axes;  // in memory order; those of the reduction are behind the data axes
  size_t own;                // the data axis, of those that the other factor does not have, to tile
  size_t inner;              // the axis to tile, own or the reduction's, whose elements lie closest
  // Of its tiles in shared memory, whose dimensions are `axes`: their order, the inner one last.
  std::vector<size_t> layout;
  int64_t vector = 1;      // elements of the widest access
  bool is_copied = false;  // may asynchronous copies fetch it?
  bool is_boxed = false;   // are its tiles boxes of a tensor, which bulk copies fetch?
  // Is one of the boxes' indices computed from axes that are not tiled, as that of a head's group
  // is?
  bool has_computed_index = false;
  // Where these are boxes of one of two tensors that follow one another: the axis, and where the
  // second one begins, which must not be inside a tile.
  struct Seam {
    size_t axis;
    int64_t at;
  };
  std::optional<Seam> seam;
  // The axis of the reduction that it has alone if it is the parts of a stage (split_operand.h):
  // its tiles hold all parts, each of which is multiplied with one tile of the other factor.
  std::optional<size_t> parts;

  bool Has(size_t axis) const;
  // The same where its tiles are those of a copy of the tensor that it loads (cache_read), of so
  // many dimensions, which its axes have these of; it is at one place of the others.
  Factor OfCopy(const std::vector<size_t>& dims, size_t rank) const;
  int64_t Parts() const { return parts.has_value() ? kPartCount : 1; }
  // Has so many threads fetch `stage`, which it is, into shared memory at a loop, swizzled so that
  // instructions read it without conflicts.
  void WriteTile(ScheduleWriter& w, const StageRef& stage, int64_t threads,
                 const LoopRef& at) const;
  // The same in lines of `span` elements, as instructions of warpgroups read it.
  void WriteLines(ScheduleWriter& w, const StageRef& stage, int64_t threads, const LoopRef& at,
                  int64_t span) const;
};

// Has each warp read what it multiplies of `tile`, an operand of `sum`, at a loop: a fragment whose
// rows are along the sum's data axis `own`, and whose columns along its reduction axis `depth`.
void WriteFragment(ScheduleWriter& w, const StageRef& sum, const StageRef& tile, size_t own,
                   size_t depth, MatrixInstruction instruction, MatrixOperand operand,
                   const LoopRef& at);

// Reductions of rows of a product's tiles, each over the `columns` that one warp, or warpgroup, has
// of a row. The root stores these alone (reduce_in_parts.h), along an axis that numbers
// the reductions and one that numbers the parts of a row, behind the product's other axes; or,
// where rows are whole, what it makes of them and of the product's elements.
struct RowParts {
  std::vector<StageRef> reductions;  // in definition order
  size_t rows = 0;                   // the factor with the rows
  size_t along = 0;                  // the product's axis of the columns
  int64_t columns = 0;
  bool are_whole = false;
};

// A kernel that is such a product.
struct MatrixKernel {
  TiledKernel kernel;
  std::array<Factor, 2> factors;  // in the order of the axes that they bring to the result
  // The reduction axis along which matrices are multiplied. The others, such as the taps of a
  // convolution, are walked one element after another.
  size_t depth = 0;
  // The reduction axis that blocks may share: that of most parts, which of the one above are tiles.
  size_t shared_axis = 0;
  // Do the factors vanish past its end, so that it may end inside a tile?
  bool vanishes = true;
  // Is there one result, whose elements lie closest along an axis of a factor?
  bool may_stage = false;
  // What is stored in the place of the product's elements, if they are not: reductions of rows and
  // what is made with them, or what is made of all elements along an axis that only one factor has,
  // such as those of a gate and of what it opens. The stages between are inlined.
  std::optional<RowParts> row_parts;
  std::optional<size_t> places;
  // Has what is stored that axis, too, as the halves of a rotary embedding? A thread stores the
  // elements at all places then.
  bool stores_places = false;
  // What is stored in their place are reductions of the product's elements over an axis that no
  // tile has, such as a sum over the heads of what their scores give: that stage, and the axis.
  std::optional<StageRef> reduced;
  std::optional<size_t> over;
  std::vector<BufferRef> inlined;

  // nullopt unless instructions of warps, or of warpgroups, can compute it on `target`.
  static std::optional<MatrixKernel> Find(const ProgramShape& shape, const KernelShape& of,
                                          const Target& target, bool in_warpgroups);
  // The same of a kernel with nothing inlined that stores something else than elements.
  static std::optional<MatrixKernel> FindFused(const ProgramShape& shape, const KernelShape& kernel,
                                               const Target& target, bool in_warpgroups);

  DType Type() const { return factors[0].operand.dtype; }  // of both
  int64_t Extent(size_t factor) const { return kernel.axes[factors[factor].own].extent; }
  bool StoresElements() const {
    return !row_parts.has_value() && !places.has_value() && !over.has_value();
  }
  bool StoresRowParts() const { return row_parts.has_value() && !row_parts->are_whole; }
  // Elements of the product for each that a thread stores.
  bool HasPlaces(size_t factor) const { return places && factors[factor].Has(*places); }
  int64_t Places() const { return places.has_value() ? kernel.axes[*places].extent : 1; }
  int64_t StoredPlaces() const { return stores_places ? Places() : 1; }
  // Is it the axis of places, or one that is reduced, which what is stored does not have?
  bool IsLost(size_t axis) const { return axis == over || (axis == places && !stores_places); }
  int64_t Depth() const { return kernel.reduce_axes[depth].extent; }
  size_t DepthAxis() const { return kernel.axes.size() + depth; }
  int64_t Shared() const { return kernel.reduce_axes[shared_axis].extent; }
  // The factor that brings the axis along which elements of the result, which has no places, lie
  // closest, if one does.
  std::optional<size_t> ResultInner() const;
  // The type of what a block stores, which may be a part of the sums alone.
  DType ResultType(bool is_part) const;
  bool IsCopied() const { return factors[0].is_copied && factors[1].is_copied; }
  bool IsBoxed() const { return factors[0].is_boxed && factors[1].is_boxed; }
  // Do the elements of a factor lie one behind the other along the axis of the result, or along the
  // reduction? Neither may be.
  bool IsAlongOwn(size_t factor) const { return factors[factor].inner == factors[factor].own; }
  bool IsAlongDepth(size_t factor) const { return factors[factor].inner == DepthAxis(); }

 private:
  void FindParts(const ProgramShape& program, const ScheduledStage& sum, const Operands& operands);
  void ChooseShared(int64_t step);
  bool ChooseDepth(int64_t step, const std::function<bool(size_t)>& is_zero_past);
  bool ChooseOwn(size_t number);
  void ChooseAccess(const ProgramShape& program, const ScheduledStage& sum, const Expr& value,
                    Factor& factor) const;
  void ChooseBoxes(const ScheduledStage& sum, const Expr& value, Factor& factor) const;
};

// What a choice makes of the kernel. Factors by their numbers in MatrixKernel.
struct MatrixTile {
  const MatrixKernel& kernel;
  size_t a = 0;                         // the factor that is operand A
  int64_t unit[2] = {}, block[2] = {};  // elements of a matrix, and of a block's tile
  int64_t step = 16, depth = 0;         // terms of a matrix, and of a tile
  int64_t threads = 0, accumulators = 0, registers = 0, shared_bytes = 0;
  int64_t parts = 1, raster = 1, min_blocks = 0;
  bool is_bulk = false;    // does one thread fetch whole tiles?
  bool is_staged = false;  // does the result go through shared memory, to be stored in whole lines?
  // Blocks that stay (persist) compute several tiles, one after another, and fetch `ahead` of the
  // `buffers` of the next one while they store a result; 0: they do not stay.
  int64_t buffers = 0, ahead = 0;

  int64_t Blocks(size_t i) const { return CeilDiv(kernel.Extent(i), block[i]); }
  int64_t Grid() const;  // without parts
  // Blocks that stay: as many as multiprocessors surely hold at a time.
  int64_t Resident() const {
    return kernel.kernel.target.sm_count * std::max<int64_t>(1, min_blocks);
  }
  // Terms of the shared axis that one block adds up.
  int64_t PartLength() const;
  // Elements of a factor's tile.
  int64_t Elements(size_t i) const {
    return block[i] * depth * kernel.factors[i].Parts() *
           (kernel.HasPlaces(i) ? kernel.Places() : 1);
  }
  int64_t Bytes(size_t i) const { return Elements(i) * SizeOf(kernel.Type()); }
  int64_t Trips(size_t i) const { return CeilDiv(Elements(i), threads * kernel.factors[i].vector); }
  // Registers that hold a tile on its way.
  int64_t Staged() const;
  // Parts of each result that a block stores (MakesParts).
  int64_t StoredParts() const { return kernel.kernel.makes_parts && parts == 1 ? kPartCount : 1; }
  // Elements of the widest access to the result; the bytes of its tile in shared memory.
  int64_t ResultVector() const;
  int64_t ResultBytes() const;
  // The result, if it goes there, added to shared_bytes: where the factors' tiles were if it is
  // large, of blocks that stay those that are not fetched meanwhile (PlaceSharedBuffers).
  void AddResult();
};

class MatrixPlan : public KernelPlan {
 public:
  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }
  double Waste(HoleValues values) const override;
  // Hole after hole, of the values for which there are some for those behind it.
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override;

 protected:
  explicit MatrixPlan(MatrixKernel kernel) : kernel_(std::move(kernel)) {}

  virtual MatrixTile TileOf(HoleValues values) const = 0;
  // Is the last of the values, of `hole`, where fast kernels lie?
  virtual bool IsLikely(HoleId hole, HoleValues values, bool may_split) const = 0;

  std::vector<int64_t> Swaps() const;  // the numbers of the factors that may be operand A
  // Columns of a warp or warpgroup: those of `all`, or what it has of a row's part, in matrices of
  // `of_matrix`.
  std::vector<int64_t> Columns(std::vector<int64_t> all, int64_t of_matrix) const;
  std::vector<int64_t> Parts() const;  // that the reduction may be split into

  // The limits that all have.
  absl::Status CheckTile(const MatrixTile& t, int64_t most_accumulators) const;

  // The kernel without its loops: the factors gathered, the reduction split over blocks.
  struct Begun {
    StageRef root, sum;
    std::vector<StageRef> factors;
    StageRef result;  // whose threads hold the sums: the root, or what it copies from shared memory
    LoopList blocks;  // loops of the result that number blocks already
    LoopList parts;   // the loop of the result over parts that a thread stores, if it does
  };
  Begun Begin(ScheduleWriter& w, const MatrixTile& t) const;
  // The result's loops: those that number blocks, the one of places that a thread stores, if it
  // does, and the parts of its two axes, the blocks' first.
  struct Result {
    LoopList blocks, places, row, col;
  };
  Result SplitResult(ScheduleWriter& w, const MatrixTile& t, const Begun& begun,
                     const std::vector<int64_t>& rows, const std::vector<int64_t>& cols) const;
  // The root's loop of blocks, fused and bound, and how they are launched.
  static LoopRef BindBlocks(ScheduleWriter& w, const MatrixTile& t, const Begun& begun,
                            const LoopList& blocks);
  // Binds them: `threads`, outermost first, and what each thread holds, the last of which it stores
  // at once. Attaches the sums there, a fragment of the instruction.
  void BindResult(ScheduleWriter& w, const MatrixTile& t, const Begun& begun, const Result& result,
                  const LoopList& threads, const LoopList& held,
                  MatrixInstruction instruction) const;
  // Of a stage's axes, where the kernel's begin: behind the one of parts.
  size_t FirstAxis(size_t axes) const { return axes - kernel_.kernel.axes.size(); }
  // The same of the result's, which may have no places.
  size_t FirstResultAxis(size_t axes) const {
    const bool has_lost = kernel_.over || (kernel_.places && kernel_.IsLost(*kernel_.places));
    return FirstAxis(axes + (has_lost ? 1 : 0));
  }
  // Of a sum: the loop over tiles of its terms, the one over the steps of a tile and the one over
  // the `terms` of a step. Other axes of the reduction are fused with the first, but that of parts.
  struct DepthLoops {
    LoopRef tiles, step, terms;
    LoopList parts;
  };
  DepthLoops SplitDepth(ScheduleWriter& w, const StageRef& sum, int64_t steps, int64_t terms) const;
  static const ScheduledStage& Stage(const ScheduleWriter& w, const StageRef& stage);

  const MatrixKernel kernel_;

 private:
  absl::Status CheckGrid(const MatrixTile& t) const;
  absl::Status CheckResult(const MatrixTile& t) const;
  void StageResult(ScheduleWriter& w, const MatrixTile& t, Begun& begun) const;
  Result SplitRowParts(ScheduleWriter& w, const MatrixTile& t, const Begun& begun,
                       const std::vector<int64_t>& rows, const std::vector<int64_t>& cols) const;
  void ReduceRows(ScheduleWriter& w, MatrixInstruction instruction, const LoopRef& thread) const;
  LoopRef ReduceElements(ScheduleWriter& w, const MatrixTile& t, MatrixInstruction instruction,
                         const LoopRef& thread) const;
};

// What the threads that hold a product's elements store: these, or, in fused kernels, reductions of
// rows, what is made of the elements at all places of an axis, or reductions over one.
enum class Stored : uint8_t { kElements, kRowParts, kOfPlaces, kReduced };

// Makes such plans. Whether lanes hold what those of a fused kernel read is found out by writing
// the simplest schedule.
template <typename Plan, Stored kStored>
std::unique_ptr<KernelPlan> PlanMatrix(const ProgramShape& shape, const KernelShape& kernel,
                                       const Target& target) {
  constexpr bool kIsFused = kStored != Stored::kElements;
  auto found = kIsFused ? MatrixKernel::FindFused(shape, kernel, target, Plan::kInWarpgroups)
                        : MatrixKernel::Find(shape, kernel, target, Plan::kInWarpgroups);
  if (!found.has_value()) return nullptr;
  const Stored stored = found->row_parts ? Stored::kRowParts
                        : found->places  ? Stored::kOfPlaces
                        : found->over    ? Stored::kReduced
                                         : Stored::kElements;
  if (stored != kStored) return nullptr;
  auto plan = std::make_unique<Plan>(*std::move(found));
  if (kIsFused && !plan->IsWritable(shape.schedule)) return nullptr;
  return plan;
}

// The rule of that.
template <typename Plan, Stored kStored>
constexpr SketchRule MatrixRule(const char* name) {
  return {.name = name,
          .apply = PlanMatrix<Plan, kStored>,
          .takes_fused_kernels = kStored != Stored::kElements,
          .multiplies_matrices = true};
}

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_PLAN_H_
