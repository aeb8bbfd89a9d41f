// Decisions of a tiling. Each stands in a file of its own with all that is to be said of it: its
// holes, where their values are drawn from, what they cost, and the steps that they become.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_TILING_DECISION_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_TILING_DECISION_H_

#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/kernels/schedule_writer.h"
#include "search_space/sketch/tiling/tile.h"
#include "search_space/sketch/tiling/tiled_kernel.h"

namespace heddle::search_space {

// Groups of holes that are redrawn together.
enum HoleGroup { kAxesGroup, kReductionGroup, kMemoryGroup, kKernelGroup };

// The plan's holes, in the order of a point's text. Where a plan has several tilings, the names of
// one begin with its prefix, and its groups with its first.
class Holes {
 public:
  explicit Holes(std::vector<Hole>& holes, std::string prefix = "", int first_group = 0)
      : holes_(holes), prefix_(std::move(prefix)), first_group_(first_group) {}
  HoleId Add(const std::string& name, std::vector<int64_t> domain, HoleGroup group) {
    holes_.push_back({prefix_ + name, std::move(domain), first_group_ + group});
    return {holes_.size() - 1};
  }

 private:
  std::vector<Hole>& holes_;
  const std::string prefix_;
  const int first_group_;
};

// 1, 2, 4, ... up to `most`, and none after the first that reaches `enough`.
std::vector<int64_t> PowersUpTo(int64_t most, int64_t enough);
// The widest access, in elements of `type`, that divides a run of so many.
int64_t WidestVector(int64_t run, DType type);

// Values being drawn; at first each is uniform.
struct Drawing {
  std::mt19937_64& rng;
  const std::vector<Hole>& holes;
  std::vector<int64_t>& values;
  // One draw in eight comes from anywhere, so that every valid choice can come up; the others come
  // from where fast kernels lie.
  bool anywhere = false;

  int64_t& operator[](HoleId hole) const { return values[hole]; }
  const std::vector<int64_t>& Domain(HoleId hole) const { return holes[hole].domain; }
  size_t Below(size_t n) const { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); }
  // One of the values, with probability proportional to its weight.
  int64_t Weighted(std::initializer_list<std::pair<int64_t, int>> choices) const;
};

// What a tiling takes of a device, added up by the decisions.
struct Usage {
  int64_t registers = 24;  // of a thread: first its addresses, loop counters and temporaries
  int64_t shared_bytes = 0;
};

// A schedule in the making: what decisions find and leave.
struct Nest {
  ScheduleWriter& w;
  // The kernel's stage and the reduction computed in it: the kernel's own or, where blocks share
  // the reduction, those of the partial results.
  StageRef stage, reduction;
  LoopList blocks, vthreads, threads, elements;  // the stage's loops, in this order
  // The axis along which blocks that follow one another differ least; unset: the first.
  std::optional<size_t> slowest;
  bool reversed = false;  // are the last of these started first?
  LoopRef thread;         // all `threads`
  LoopRef tiles;          // the loop over tiles, in which operands are fetched
  LoopRef once;           // where those are that are the same in all of these (Tile::IsFetchedOnce)
  LoopRef slice;          // the one within a tile that parts of the block share, if they do
  LoopList inner;         // the other ones within a tile, of each reduction axis
  std::vector<StageRef> operands, held;  // the stages of those operands that are gathered
};

// When steps are written, in this order.
enum class Place {
  kReduction,  // what is reduced where: the stages of the nest
  kLoops,      // the stage's loops are split
  kGrid,       // its blocks are bound
  kKernel,     // all its loops are
  kTiles,      // the reduction is computed in the stage, and its loops are split
  kInner,      // they are in their final order
  kOperands,   // what is fetched for a tile
  kPipeline    // everything is in its place
};

class Decision {
 public:
  virtual ~Decision() = default;
  Decision(const Decision&) = delete;
  Decision& operator=(const Decision&) = delete;

  // Draws the values of the holes, after the decisions before it: `tile` is what these say, and the
  // decision may try its own choices in it.
  virtual void Draw(const Drawing&, Tile&) const {}
  // Takes back what the draws of later decisions left no room for.
  virtual void Settle(const Drawing&, const Tile&) const {}
  // Tells the other decisions.
  virtual void Describe(Tile&) const {}
  // Adds what the decision takes; ResourceExhausted when its limits are not met.
  virtual absl::Status Cost(const Tile&, Usage&) const { return absl::OkStatus(); }
  virtual void Write(Place, const Tile&, Nest&) const {}

 protected:
  // A decision declares its holes where it is made.
  explicit Decision(const TiledKernel& kernel) : kernel_(kernel) {}

  const TiledKernel& kernel_;
};

// The decisions, each at the place of its holes in a point's text: a new one comes last.
using MakeDecision = std::unique_ptr<Decision>(const TiledKernel&, Holes&);
MakeDecision MakeAxes, MakeReduction, MakeOperands, MakePipeline, MakeOccupancy, MakeRaster,
    MakeSplit, MakeSlices;
// As MakeReduction, and there may be a single tile of it all.
MakeDecision MakeShortReduction;
inline constexpr MakeDecision* kDecisions[] = {MakeAxes,     MakeReduction, MakeOperands,
                                               MakePipeline, MakeOccupancy, MakeRaster,
                                               MakeSplit,    MakeSlices};

// The decisions of one tiling together.
class Decisions {
 public:
  // `kernel` outlives them.
  Decisions(const TiledKernel& kernel, absl::Span<MakeDecision* const> make, Holes& holes);

  Tile TileOf(HoleValues values) const;
  // Draws all values; `tile` has what was drawn.
  void Draw(const Drawing& drawing, Tile& tile) const;
  absl::Status Cost(const Tile& tile, Usage& usage) const;
  void Write(Place place, const Tile& tile, Nest& nest) const;
  // All steps of a kernel: of the nest's stage and reduction, which are given. Then those from the
  // place on where the reduction is computed in the nest's threads.
  void WriteKernel(const Tile& tile, Nest& nest) const;
  void WriteReduction(const Tile& tile, Nest& nest) const;

 private:
  const TiledKernel& kernel_;
  std::vector<std::unique_ptr<const Decision>> decisions_;
};

// ResourceExhausted where a block of so many threads has not that much of the target.
absl::Status CheckUsage(const TiledKernel& kernel, const Tile& tile, const Usage& usage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_TILING_DECISION_H_
