// The plan of multi-level tiling (rule_tiling.cc), whose parts are files of their own: limits,
// draws and steps.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_TILING_PLAN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_TILING_PLAN_H_

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "search_space/sketch/sketch.h"

namespace heddle::search_space {

inline constexpr int64_t kMostThreads = 512;
inline constexpr int64_t kWindow = 8;  // a reduction axis no longer than this is a window

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Holes of one data axis, in this order.
enum AxisHole { kVthread, kWarp, kLane, kTile, kAxisHoles };

struct TiledAxis {
  std::string name;
  int64_t extent;
  size_t first_hole;
  std::string reduction_name = "";  // of the same axis in the reduction
  int64_t BlockTile(HoleValues v) const {
    return v[first_hole + kVthread] * v[first_hole + kWarp] * v[first_hole + kLane] *
           v[first_hole + kTile];
  }
  int64_t ThreadTile(HoleValues v) const {
    return v[first_hole + kVthread] * v[first_hole + kTile];
  }
};

// index = sum of stride * axis: how an input dimension depends on the result's and reduction axes.
struct IndexTerm {
  int axis;  // data axes first, then reduction axes
  int64_t stride;
};

struct TiledInput {
  std::string tensor;  // what the reduction reads
  bool is_stage;       // an elementwise stage computed into shared memory, else a tensor copied
  std::vector<std::string> axes;             // names of the cached stage's axes
  std::vector<std::vector<IndexTerm>> dims;  // of each axis
  std::vector<bool> unit;                    // the axis is exactly one result or reduction axis
  int64_t row_extent = 1;                    // extent of the innermost dimension in memory
  int inner = -1;                            // dimension that lies innermost in shared memory
  size_t first_hole = 0;                     // fetch vector, pad, align
};
enum InputHole { kFetchVector, kPad, kAlign, kInputHoles };

// What the tiled loops are called: the kernel's own, or, where the reduction is split over blocks,
// those of the partial results.
struct Nest {
  std::string stage, reduction;
  std::vector<std::string> axes, reduction_axes;  // the data axes, in each of the two
  std::vector<std::string> reduce_axes;
  std::vector<std::string> parts;  // axes of the stage that become blocks whole
  // The loop over tiles of the reduction, in which the inputs are fetched.
  std::string TileLoop() const { return absl::StrJoin(reduce_axes, ".0@") + ".0"; }
};

class TilingPlan : public KernelPlan {
 public:
  TilingPlan(const ProgramShape& shape, const KernelShape& kernel, const Target& target)
      : target_(target) {
    const auto& stages = shape.schedule.stages();
    const ScheduledStage& root = stages[static_cast<size_t>(kernel.root)];
    const ScheduledStage& reduction = stages[static_cast<size_t>(kernel.reductions[0])];
    root_ = root.name();
    reduction_ = reduction.name();
    element_bytes_ = SizeOf(reduction.tensor->dtype);
    AddAxisHoles(root, reduction);
    for (size_t a = 0; a < axes_.size(); ++a) axes_[a].reduction_name = reduction.axes[a]->name;
    AddReduceHoles(reduction);
    AddInputs(shape, kernel, reduction);
    AddKernelHoles();
  }

  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }

  absl::Status Check(HoleValues v) const override;
  double Waste(HoleValues v) const override {
    double waste = 1;
    for (const TiledAxis& a : axes_) {
      const int64_t tile = a.BlockTile(v);
      waste *= static_cast<double>(CeilDiv(a.extent, tile) * tile) / static_cast<double>(a.extent);
    }
    for (const TiledAxis& r : reduce_) {
      const int64_t tile = v[r.first_hole];
      const int64_t covered =
          &r == &SplitAxis() ? v[split_hole_] * SplitLength(v) : CeilDiv(r.extent, tile) * tile;
      waste *= static_cast<double>(covered) / static_cast<double>(r.extent);
    }
    return waste;
  }
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override;
  void AppendSteps(HoleValues v, std::vector<Step>& steps) const override;

 private:
  void AddAxisHoles(const ScheduledStage& root, const ScheduledStage& reduction);
  void AddReduceHoles(const ScheduledStage& reduction);
  void AddInputs(const ProgramShape& shape, const KernelShape& kernel,
                 const ScheduledStage& reduction);
  void AddKernelHoles();

  // Threads that make a tile, and those of a block: where the reduction is sliced, several make
  // one.
  int64_t TileThreads(HoleValues v) const {
    int64_t threads = 1;
    for (const TiledAxis& a : axes_) threads *= v[a.first_hole + kWarp] * v[a.first_hole + kLane];
    return threads;
  }
  int64_t Threads(HoleValues v) const { return TileThreads(v) * v[slice_hole_]; }
  int64_t Accumulators(HoleValues v) const {
    int64_t accumulators = 1;
    for (const TiledAxis& a : axes_) accumulators *= a.ThreadTile(v);
    return accumulators;
  }
  // Tiles of the result.
  int64_t Blocks(HoleValues v) const {
    int64_t blocks = 1;
    for (const TiledAxis& a : axes_) blocks *= CeilDiv(a.extent, a.BlockTile(v));
    return blocks;
  }
  // Data axes along which an input is contiguous in shared memory.
  std::vector<size_t> ContiguousAxes() const {
    std::vector<size_t> out;
    for (const TiledInput& in : inputs_) {
      for (const IndexTerm& t : in.dims[static_cast<size_t>(in.inner)]) {
        const auto a = static_cast<size_t>(t.axis);
        if (a < axes_.size() && std::find(out.begin(), out.end(), a) == out.end()) {
          out.push_back(a);
        }
      }
    }
    return out;
  }
  void DrawTiles(std::mt19937_64& rng, bool anywhere, std::vector<int64_t>& values) const;
  void DrawSplit(std::mt19937_64& rng, std::vector<int64_t>& values) const;
  void DrawSlices(std::mt19937_64& rng, std::vector<int64_t>& values) const;
  // Does another dimension lie innermost in shared memory than in the tensor?
  static bool IsTransposed(const TiledInput& in) {
    return in.inner + 1 != static_cast<int>(in.dims.size());
  }
  // Is dimension `d` of an input exactly one reduction axis that is short enough to be a window?
  bool IsWindow(const TiledInput& in, size_t d) const {
    const auto& terms = in.dims[d];
    const size_t r = terms.empty() ? 0 : static_cast<size_t>(terms[0].axis);
    return in.unit[d] && terms.size() == 1 && r >= axes_.size() &&
           reduce_[r - axes_.size()].extent <= kWindow;
  }
  // Elements of dimension `d` of an input in a block's tile (shared) or a thread's fragment.
  int64_t SharedExtent(const TiledInput& in, size_t d, HoleValues v) const;
  int64_t FragmentElements(const TiledInput& in, HoleValues v) const;
  int64_t SharedElements(const TiledInput& in, HoleValues v) const;
  // The reduction axis at whose inner loop fragments are loaded: the innermost, or the one around
  // it, so that a row with halo serves every position of a window.
  size_t FragmentLevel(HoleValues v) const {
    return reduce_.size() - 1 - static_cast<size_t>(v[fragment_hole_]);
  }
  std::pair<int, int> ZigzagAxes(HoleValues v) const;
  // The reduction axis that is split over blocks: the longest.
  const TiledAxis& SplitAxis() const {
    return *std::max_element(
        reduce_.begin(), reduce_.end(),
        [](const TiledAxis& a, const TiledAxis& b) { return a.extent < b.extent; });
  }
  // How much of it one block reduces: whole tiles, so that only the last block has a tail.
  int64_t SplitLength(HoleValues v) const {
    const int64_t tile = v[SplitAxis().first_hole];
    return CeilDiv(CeilDiv(SplitAxis().extent, v[split_hole_]), tile) * tile;
  }
  absl::Status CheckSplit(HoleValues v, int64_t blocks) const;
  absl::Status CheckSlices(HoleValues v, int64_t blocks) const;
  absl::Status CheckInnerLoop(HoleValues v) const;
  // Times that one tile of the reduction reads its fragments.
  int64_t FragmentIterations(HoleValues v) const;
  // Through which slices combine their results.
  int64_t SliceBytes(HoleValues v) const {
    return (v[slice_hole_] - 1) * TileThreads(v) * Accumulators(v) * element_bytes_;
  }
  // The loop within a tile of reduction axis `r`.
  std::string InnerLoop(const Nest& nest, size_t r, HoleValues v) const {
    const bool sliced = v[slice_hole_] > 1 && &reduce_[r] == &SplitAxis();
    return nest.reduce_axes[r] + (sliced ? ".2" : ".1");
  }
  Nest AppendSplitSteps(HoleValues v, std::vector<Step>& steps) const;
  void AppendRootSteps(const Nest& nest, HoleValues v, std::vector<Step>& steps,
                       std::string& thread) const;
  void AppendReductionSteps(const Nest& nest, HoleValues v, std::vector<Step>& steps) const;
  void AppendInputSteps(const Nest& nest, const TiledInput& in, HoleValues v,
                        std::vector<Step>& steps) const;

  const Target target_;
  std::string root_, reduction_;
  int64_t element_bytes_ = 4;
  std::vector<TiledAxis> axes_;
  std::vector<TiledAxis> reduce_;  // first_hole: the inner extent
  std::vector<TiledInput> inputs_;
  size_t fragment_hole_ = 0, pipeline_hole_ = 0, unroll_hole_ = 0, prefetch_hole_ = 0,
         interleave_hole_ = 0, blocks_hole_ = 0, swizzle_hole_ = 0, split_hole_ = 0,
         slice_hole_ = 0;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_TILING_PLAN_H_
