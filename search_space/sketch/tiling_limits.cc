// Which tilings fit a device: threads, shared memory, registers, code size.
#include "absl/strings/str_cat.h"
#include "search_space/ir/stmt.h"
#include "search_space/sketch/tiling_plan.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMaxUnrolledMultiplyAdds = 8192;
constexpr int64_t kMaxFetchTrips = 32;
constexpr int64_t kOtherRegisters = 24;  // addresses, loop counters, temporaries

}  // namespace

int64_t TilingPlan::SharedExtent(const TiledInput& in, size_t d, HoleValues v) const {
  int64_t extent = 1;
  for (const IndexTerm& t : in.dims[d]) {
    const auto a = static_cast<size_t>(t.axis);
    const int64_t tile =
        a < axes_.size() ? axes_[a].BlockTile(v) : v[reduce_[a - axes_.size()].first_hole];
    extent += (tile - 1) * t.stride;
  }
  const int64_t align = v[in.first_hole + kAlign];
  if (d + 1 == in.dims.size() && align > 1) extent = CeilDiv(extent + align - 1, align) * align;
  return extent;
}

int64_t TilingPlan::SharedElements(const TiledInput& in, HoleValues v) const {
  int64_t elements = 1;
  for (size_t d = 0; d < in.dims.size(); ++d) {
    const int64_t pad = static_cast<int>(d) == in.inner ? v[in.first_hole + kPad] : 0;
    elements *= SharedExtent(in, d, v) + pad;
  }
  return elements;
}

int64_t TilingPlan::FragmentElements(const TiledInput& in, HoleValues v) const {
  int64_t elements = 1, vthreads = 1;
  const size_t level = FragmentLevel(v);
  std::vector<bool> used(axes_.size(), false);
  for (const auto& dim : in.dims) {
    int64_t extent = 1;
    for (const IndexTerm& t : dim) {
      const auto a = static_cast<size_t>(t.axis);
      if (a < axes_.size()) {
        extent += (v[axes_[a].first_hole + kTile] - 1) * t.stride;
        if (!used[a]) vthreads *= v[axes_[a].first_hole + kVthread];
        used[a] = true;
      } else if (a - axes_.size() > level) {
        extent += (v[reduce_[a - axes_.size()].first_hole] - 1) * t.stride;
      }
    }
    elements *= extent;
  }
  return elements * vthreads;
}

int64_t TilingPlan::FragmentIterations(HoleValues v) const {
  int64_t iterations = 1;
  for (size_t r = 0; r <= FragmentLevel(v); ++r) iterations *= v[reduce_[r].first_hole];
  return iterations / v[slice_hole_];
}

// Splitting over blocks is for results too small to fill the device.
absl::Status TilingPlan::CheckSplit(HoleValues v, int64_t blocks) const {
  const int64_t parts = v[split_hole_];
  if (parts == 1) return absl::OkStatus();
  if (blocks >= 2 * target_.sm_count || blocks * parts > 16 * target_.sm_count) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", blocks, " blocks need no reduction split ", parts, " times"));
  }
  if (CeilDiv(SplitAxis().extent, SplitLength(v)) != parts || v[swizzle_hole_] > 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", parts, " parts of ", SplitLength(v), " are not all needed"));
  }
  return absl::OkStatus();
}

// Slices give a small grid more warps; a large one has enough.
absl::Status TilingPlan::CheckSlices(HoleValues v, int64_t blocks) const {
  const int64_t slices = v[slice_hole_];
  if (slices == 1) return absl::OkStatus();
  if (blocks > 4 * target_.sm_count || v[SplitAxis().first_hole] % slices != 0 ||
      TileThreads(v) % kWarpThreads != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", slices, " slices do not divide the work of ", blocks, " blocks"));
  }
  return absl::OkStatus();
}

// Fragments that run ahead, through the barriers of a pipeline, and fetches in parts want an inner
// loop that is unrolled and has iterations to share.
absl::Status TilingPlan::CheckInnerLoop(HoleValues v) const {
  if (v[prefetch_hole_] == 0 && v[interleave_hole_] == 0) return absl::OkStatus();
  const int64_t iterations = FragmentIterations(v);
  const bool pipelined = v[pipeline_hole_] > 0 && v[unroll_hole_] != 0;
  const bool ahead = v[prefetch_hole_] == 0 || (v[slice_hole_] == 1 && iterations % 2 == 0);
  const bool shared =
      v[interleave_hole_] == 0 || (v[pipeline_hole_] > 1 && iterations - v[prefetch_hole_] >= 2);
  if (pipelined && ahead && shared) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(root_, ": ", iterations, " iterations of the inner loop, in which nothing runs ",
                   "ahead or is shared out"));
}

absl::Status TilingPlan::Check(HoleValues v) const {
  auto refuse = [&](const char* what, int64_t value, int64_t limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", value, " ", what, ", at most ", limit));
  };
  const int64_t accumulators = Accumulators(v), blocks = Blocks(v);
  int64_t least_threads = 1;
  for (const TiledAxis& a : axes_) {
    int64_t power = 1;
    while (power * 2 <= a.extent) power *= 2;
    least_threads = std::min<int64_t>(least_threads * power, 32);
    // Tiles that are mostly padding are never worth a trial.
    if (a.BlockTile(v) >= 2 * a.extent && a.BlockTile(v) > 1) {
      return refuse("elements in a tile", a.BlockTile(v), 2 * a.extent);
    }
  }
  const int64_t threads = Threads(v);
  if (TileThreads(v) < least_threads) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", TileThreads(v), " threads, at least ", least_threads));
  }
  const int64_t most_threads = std::min(kMostThreads, target_.max_threads_per_block);
  if (threads > most_threads) return refuse("threads", threads, most_threads);
  if (blocks > target_.max_grid) return refuse("blocks", blocks, target_.max_grid);
  if (absl::Status s = CheckSplit(v, blocks); !s.ok()) return s;
  if (absl::Status s = CheckSlices(v, blocks * v[split_hole_]); !s.ok()) return s;
  if (accumulators > 128) return refuse("accumulators", accumulators, 128);

  const int64_t pipeline = v[pipeline_hole_];
  int64_t shared = 0, fragments = 0, staged = 0, k_iterations = 1, window = 1;
  for (size_t r = 0; r < reduce_.size(); ++r) {
    k_iterations *= v[reduce_[r].first_hole];
    if (r > FragmentLevel(v)) window *= v[reduce_[r].first_hole];
  }
  for (const TiledInput& in : inputs_) {
    const int64_t elements = SharedElements(in, v);
    shared += (elements * element_bytes_ + 31) / 16 * 16;
    fragments += FragmentElements(in, v);
    const int64_t trips = CeilDiv(elements, threads * v[in.first_hole + kFetchVector]);
    if (trips > kMaxFetchTrips) return refuse("fetches a thread", trips, kMaxFetchTrips);
    if (pipeline == 1) staged += trips * v[in.first_hole + kFetchVector];
  }
  const int64_t copies = pipeline == 0 ? 1 : std::max<int64_t>(2, pipeline);
  const int64_t all_shared = shared * copies + SliceBytes(v);
  if (all_shared > target_.max_shared_bytes_per_block) {
    return refuse("shared bytes", all_shared, target_.max_shared_bytes_per_block);
  }
  if (absl::Status s = CheckInnerLoop(v); !s.ok()) return s;
  const int64_t registers =
      accumulators + fragments * (1 + v[prefetch_hole_]) + staged + kOtherRegisters;
  const int64_t min_blocks = std::max<int64_t>(1, v[blocks_hole_]);
  const int64_t most =
      std::min(target_.max_registers_per_thread,
               target_.registers_per_sm / (CeilDiv(threads, 32) * 32 * min_blocks));
  if (registers > most) return refuse("registers", registers, most);
  const int64_t unrolled = accumulators * (v[unroll_hole_] != 0 ? k_iterations : window);
  if (unrolled > kMaxUnrolledMultiplyAdds) {
    return refuse("unrolled multiply-adds", unrolled, kMaxUnrolledMultiplyAdds);
  }
  const TiledAxis& first = axes_.front();
  if (v[swizzle_hole_] > 1 &&
      (axes_.size() < 2 || CeilDiv(first.extent, first.BlockTile(v)) % v[swizzle_hole_] != 0)) {
    return refuse("rows of blocks in a group", v[swizzle_hole_], 1);
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
