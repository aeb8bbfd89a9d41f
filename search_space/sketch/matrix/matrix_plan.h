// What plans for products of matrices of narrow numbers have in common, whichever instructions
// multiply: a block makes a tile of the result, from tiles of both operands in shared memory.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_PLAN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_PLAN_H_

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/kernels/rule.h"
#include "search_space/sketch/matrix/matrix_kernel.h"

namespace heddle::search_space {

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
  static constexpr int64_t kOtherRegisters = 40;  // addresses, loop counters, temporaries

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
