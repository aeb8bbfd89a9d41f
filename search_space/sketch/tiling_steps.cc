// The steps of a tiling.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "search_space/sketch/combine.h"
#include "search_space/sketch/tiling_plan.h"

namespace heddle::search_space {
// The two axes whose lanes alternate in the lowest bits of the thread index, or -1: neighbours then
// share what they read of one input, and neighbours of neighbours what they read of another, which
// halves the cycles that 16-byte reads of shared memory take.
std::pair<int, int> TilingPlan::ZigzagAxes(HoleValues v) const {
  std::vector<uint64_t> readers(axes_.size(), 0);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (const auto& dim : inputs_[i].dims) {
      for (const IndexTerm& t : dim) {
        const auto a = static_cast<size_t>(t.axis);
        if (a < axes_.size()) readers[a] |= uint64_t{1} << i;
      }
    }
  }
  for (size_t a = axes_.size(); a-- > 0;) {
    for (size_t b = a; b-- > 0;) {
      const bool lanes = v[axes_[a].first_hole + kLane] > 1 && v[axes_[b].first_hole + kLane] > 1;
      const uint64_t both = readers[a] & readers[b];
      if (lanes && both != readers[a] && both != readers[b]) {
        return {static_cast<int>(b), static_cast<int>(a)};
      }
    }
  }
  return {-1, -1};
}

// Splits the reduction over blocks where the point asks for it. The partial results are written to
// a tensor in global memory, whose axes are the parts and the result's; the kernel's own stage adds
// them up.
Nest TilingPlan::AppendSplitSteps(HoleValues v, std::vector<Step>& steps) const {
  Nest nest{.stage = root_, .reduction = reduction_};
  for (const TiledAxis& a : axes_) {
    nest.axes.push_back(a.name);
    nest.reduction_axes.push_back(a.reduction_name);
  }
  for (const TiledAxis& r : reduce_) nest.reduce_axes.push_back(r.name);
  if (v[split_hole_] == 1) return nest;
  const TiledAxis& split = SplitAxis();
  steps.push_back(Split{reduction_, split.name, {SplitLength(v)}});
  const std::string part = split.name + ".0";
  steps.push_back(Rfactor{reduction_, part});
  nest.reduction = reduction_ + ".rf";
  steps.push_back(CacheRead{nest.reduction, Scope::kGlobal, reduction_});
  nest.stage = nest.reduction + ".global";
  nest.parts = {part};
  Combination combination{root_,          reduction_, nest.stage,          part,
                          v[split_hole_], nest.axes,  nest.reduction_axes, {}};
  for (const TiledAxis& a : axes_) combination.extents.push_back(a.extent);
  AppendCombineKernel(combination, target_, steps);
  nest.axes = nest.reduction_axes;
  nest.reduce_axes[static_cast<size_t>(&split - reduce_.data())] += ".1";
  return nest;
}

void TilingPlan::AppendRootSteps(const Nest& nest, HoleValues v, std::vector<Step>& steps,
                                 std::string& thread) const {
  const std::string& root = nest.stage;
  std::vector<std::string> blocks = nest.parts, vthreads, warps, lanes, low_lanes, tiles;
  const auto [first, second] = ZigzagAxes(v);
  for (size_t i = 0; i < axes_.size(); ++i) {
    const std::string& name = nest.axes[i];
    const int64_t* h = &v[axes_[i].first_hole];
    const bool zigzag = static_cast<int>(i) == first || static_cast<int>(i) == second;
    if (zigzag) {
      steps.push_back(Split{root, name, {h[kVthread], h[kWarp], h[kLane] / 2, 2, h[kTile]}});
      low_lanes.push_back(name + ".4");
    } else {
      steps.push_back(Split{root, name, {h[kVthread], h[kWarp], h[kLane], h[kTile]}});
    }
    blocks.push_back(name + ".0");
    vthreads.push_back(name + ".1");
    warps.push_back(name + ".2");
    lanes.push_back(name + ".3");
    tiles.push_back(name + (zigzag ? ".5" : ".4"));
  }
  lanes.insert(lanes.end(), low_lanes.begin(), low_lanes.end());
  const int64_t inner_tile = v[axes_.back().first_hole + kTile];
  const int64_t vector = inner_tile % 4 == 0 ? 4 : (inner_tile % 2 == 0 ? 2 : 1);
  if (vector > 1) {
    steps.push_back(Split{root, tiles.back(), {vector}});
    const std::string split = tiles.back();
    tiles.back() = split + ".0";
    tiles.push_back(split + ".1");
  }
  std::vector<std::string> threads;
  if (v[slice_hole_] > 1) {
    steps.push_back(Replicate{root, v[slice_hole_]});
    threads.push_back("lane");
  }
  threads.insert(threads.end(), warps.begin(), warps.end());
  threads.insert(threads.end(), lanes.begin(), lanes.end());
  std::vector<std::string> order = blocks;
  for (const auto* part : {&vthreads, &threads, &tiles}) {
    order.insert(order.end(), part->begin(), part->end());
  }
  steps.push_back(Reorder{root, order});
  if (blocks.size() > 1) steps.push_back(Fuse{root, blocks});
  steps.push_back(Bind{root, absl::StrJoin(blocks, "@"), BindTo::kBlock});
  if (v[swizzle_hole_] > 1) steps.push_back(BlockSwizzle{root, v[swizzle_hole_]});
  for (const std::string& a : nest.axes) {
    steps.push_back(Bind{root, a + ".1", BindTo::kVthread});
  }
  steps.push_back(Fuse{root, threads});
  thread = absl::StrJoin(threads, "@");
  steps.push_back(Bind{root, thread, BindTo::kThread});
  if (vector > 1) steps.push_back(Vectorize{root, tiles.back()});
  if (v[blocks_hole_] > 0) steps.push_back(LaunchBounds{root, v[blocks_hole_]});
}

void TilingPlan::AppendReductionSteps(const Nest& nest, HoleValues v,
                                      std::vector<Step>& steps) const {
  std::vector<std::string> outer, slice, inner;
  for (size_t r = 0; r < reduce_.size(); ++r) {
    const std::string& name = nest.reduce_axes[r];
    const int64_t tile = v[reduce_[r].first_hole];
    if (v[slice_hole_] > 1 && &reduce_[r] == &SplitAxis()) {
      steps.push_back(Split{nest.reduction, name, {v[slice_hole_], tile / v[slice_hole_]}});
      slice = {name + ".1"};
    } else {
      steps.push_back(Split{nest.reduction, name, {tile}});
    }
    outer.push_back(name + ".0");
    inner.push_back(InnerLoop(nest, r, v));
  }
  std::vector<std::string> order = outer;
  order.insert(order.end(), slice.begin(), slice.end());
  order.insert(order.end(), inner.begin(), inner.end());
  order.insert(order.end(), nest.reduction_axes.begin(), nest.reduction_axes.end());
  steps.push_back(Reorder{nest.reduction, order});
  // One loop over all tiles, so that a pipeline runs through it from end to end.
  if (outer.size() > 1) steps.push_back(Fuse{nest.reduction, outer});
  if (!slice.empty()) steps.push_back(Bind{nest.reduction, slice[0], BindTo::kSlice});
  if (v[unroll_hole_] != 0 && v[prefetch_hole_] == 0) {
    steps.push_back(Unroll{nest.reduction, inner.back()});
  }
}

void TilingPlan::AppendInputSteps(const Nest& nest, const TiledInput& in, HoleValues v,
                                  std::vector<Step>& steps) const {
  const std::string at = nest.TileLoop();
  std::string tile = in.tensor;
  if (in.is_stage) {
    steps.push_back(SetScope{in.tensor, Scope::kShared});
  } else {
    steps.push_back(CacheRead{in.tensor, Scope::kShared, nest.reduction});
    tile = in.tensor + ".shared";
  }
  steps.push_back(ComputeAt{tile, nest.reduction, at});
  const int64_t align = v[in.first_hole + kAlign];
  if (align > 1) steps.push_back(Align{tile, in.axes.back(), align});
  std::vector<std::string> order;
  for (size_t d = 0; d < in.axes.size(); ++d) {
    if (static_cast<int>(d) != in.inner) order.push_back(in.axes[d]);
  }
  order.push_back(in.axes[static_cast<size_t>(in.inner)]);
  steps.push_back(StorageLayout{tile, order, v[in.first_hole + kPad], 0});
  steps.push_back(Fetch{tile, Threads(v), v[in.first_hole + kFetchVector]});
  // The fragment: a contiguous run along the innermost shared axis, in registers.
  steps.push_back(CacheRead{tile, Scope::kLocal, nest.reduction});
  const std::string fragment = tile + ".local";
  steps.push_back(ComputeAt{fragment, nest.reduction, InnerLoop(nest, FragmentLevel(v), v)});
  const auto& run = in.dims[static_cast<size_t>(in.inner)];
  if (run.size() != 1 || run[0].stride != 1 || run[0].axis >= static_cast<int>(axes_.size())) {
    return;
  }
  const int64_t length = v[axes_[static_cast<size_t>(run[0].axis)].first_hole + kTile];
  const int64_t vector = length % 4 == 0 ? 4 : (length % 2 == 0 ? 2 : 1);
  if (vector == 1) return;
  const std::string axis = in.axes[static_cast<size_t>(in.inner)];
  steps.push_back(Split{fragment, axis, {vector}});
  std::vector<std::string> loops;
  for (size_t d = 0; d < in.axes.size(); ++d) {
    if (static_cast<int>(d) != in.inner) loops.push_back(in.axes[d]);
  }
  loops.push_back(axis + ".0");
  loops.push_back(axis + ".1");
  steps.push_back(Reorder{fragment, loops});
  steps.push_back(Vectorize{fragment, axis + ".1"});
}

void TilingPlan::AppendSteps(HoleValues v, std::vector<Step>& steps) const {
  std::string thread;
  const Nest nest = AppendSplitSteps(v, steps);
  AppendRootSteps(nest, v, steps, thread);
  steps.push_back(SetScope{nest.reduction, Scope::kLocal});
  steps.push_back(ComputeAt{nest.reduction, nest.stage, thread});
  AppendReductionSteps(nest, v, steps);
  for (const TiledInput& in : inputs_) AppendInputSteps(nest, in, v, steps);
  const int64_t pipeline = v[pipeline_hole_];
  if (pipeline > 0) {
    steps.push_back(Pipeline{nest.reduction, nest.TileLoop(),
                             pipeline == 1 ? PipelineKind::kRegisters : PipelineKind::kAsyncCopy,
                             std::max<int64_t>(2, pipeline)});
  }
  const std::string inner = InnerLoop(nest, FragmentLevel(v), v);
  if (v[prefetch_hole_] != 0) {
    steps.push_back(Pipeline{nest.reduction, inner, PipelineKind::kRegisters, 2});
  }
  if (v[interleave_hole_] != 0) steps.push_back(Interleave{nest.reduction, inner});
}

}  // namespace heddle::search_space
