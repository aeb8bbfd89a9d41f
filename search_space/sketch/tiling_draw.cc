// Where tilings are drawn from.
#include <algorithm>
#include <utility>

#include "search_space/sketch/tiling_plan.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kShortAxis = 64;   // shorter, an axis may want tiles such as 7
constexpr int64_t kFullBlock = 128;  // threads that keep a multiprocessor busy
constexpr int64_t kVectorRun = 4;    // elements of 4 bytes in the widest access

// One of the values, with probability proportional to its weight.
int64_t Weighted(std::mt19937_64& rng, std::initializer_list<std::pair<int64_t, int>> choices) {
  int total = 0;
  for (const auto& c : choices) total += c.second;
  int at = std::uniform_int_distribution<int>(0, total - 1)(rng);
  for (const auto& c : choices) {
    if ((at -= c.second) < 0) return c.first;
  }
  return choices.begin()->first;
}

}  // namespace

// Most draws come from where fast kernels lie: whole warps of a few lanes along each axis, 32 to
// 128 accumulators a thread in runs of four, wide fetches, a pipeline, at least a block for most
// multiprocessors. The rest is uniform, so that every valid choice can come up.
void TilingPlan::Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  KernelPlan::Draw(rng, values);
  const bool anywhere = Weighted(rng, {{1, 1}, {0, 7}}) != 0;
  // Small results cannot fill the device, unless their reduction is split; big ones should.
  values[slice_hole_] = 1;
  static constexpr int kAttempts = 6;
  const bool may_split = Weighted(rng, {{1, 1}, {0, 2}}) != 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    DrawTiles(rng, anywhere, values);
    if (anywhere || may_split || Blocks(values) * 4 >= target_.sm_count * 3) break;
  }
  if (anywhere) return DrawSplit(rng, values);
  const bool window = reduce_.back().extent <= kWindow;
  for (const TiledAxis& r : reduce_) {
    const auto& domain = holes_[r.first_hole].domain;
    if (r.extent <= kWindow) {
      values[r.first_hole] =
          domain[static_cast<size_t>(Weighted(rng, {{0, 7}, {1, 1}})) % domain.size()];
    } else {
      values[r.first_hole] = window ? Weighted(rng, {{4, 3}, {8, 5}, {16, 3}, {32, 1}})
                                    : Weighted(rng, {{4, 1}, {8, 5}, {16, 6}, {32, 3}});
    }
  }
  for (const TiledInput& in : inputs_) {
    int64_t& vector = values[in.first_hole + kFetchVector];
    if (Weighted(rng, {{1, 3}, {0, 1}}) != 0) {
      vector = holes_[in.first_hole + kFetchVector].domain.back();
    }
    // Without padding, what is stored across the rows of a tile meets the same banks.
    if (IsTransposed(in)) values[in.first_hole + kPad] = Weighted(rng, {{4, 4}, {1, 2}, {0, 1}});
  }
  if (Weighted(rng, {{1, 7}, {0, 1}}) != 0) values[unroll_hole_] = 1;
  if (values[pipeline_hole_] == 0) {
    const auto& depths = holes_[pipeline_hole_].domain;
    values[pipeline_hole_] =
        depths[static_cast<size_t>(Weighted(rng, {{0, 1}, {1, 4}, {2, 3}, {3, 3}})) %
               depths.size()];
  }
  DrawSplit(rng, values);
}

// Where the blocks are few, any number of parts is as likely.
void TilingPlan::DrawSplit(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  std::vector<int64_t> splits;
  const int64_t swizzle = std::exchange(values[swizzle_hole_], 1);
  for (int64_t parts : holes_[split_hole_].domain) {
    values[split_hole_] = parts;
    if (CheckSplit(values, Blocks(values)).ok()) splits.push_back(parts);
  }
  values[split_hole_] = splits[std::uniform_int_distribution<size_t>(0, splits.size() - 1)(rng)];
  if (values[split_hole_] == 1) values[swizzle_hole_] = swizzle;
  DrawSlices(rng, values);
}

void TilingPlan::DrawSlices(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  std::vector<int64_t> valid;
  for (int64_t slices : holes_[slice_hole_].domain) {
    values[slice_hole_] = slices;
    const bool fits = Threads(values) <= kMostThreads;
    if (fits && CheckSlices(values, Blocks(values) * values[split_hole_]).ok()) {
      valid.push_back(slices);
    }
  }
  values[slice_hole_] = 1;
  if (!valid.empty()) {
    values[slice_hole_] = valid[std::uniform_int_distribution<size_t>(0, valid.size() - 1)(rng)];
  }
  const int64_t prefetch = std::exchange(values[prefetch_hole_], 0);
  if (!CheckInnerLoop(values).ok()) values[interleave_hole_] = 0;
  values[prefetch_hole_] = prefetch;
  if (!CheckInnerLoop(values).ok()) values[prefetch_hole_] = 0;
}

// Threads and register tiles are doublings dealt out to the axes: independent draws would seldom
// multiply up to a valid block.
void TilingPlan::DrawTiles(std::mt19937_64& rng, bool anywhere,
                           std::vector<int64_t>& values) const {
  for (const TiledAxis& a : axes_) {
    for (size_t h = a.first_hole; h < a.first_hole + kAxisHoles; ++h) values[h] = 1;
  }
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  auto grow = [&](const TiledAxis& a, size_t hole, int64_t factor) {
    const auto& domain = holes_[a.first_hole + hole].domain;
    int64_t& value = values[a.first_hole + hole];
    const bool fits = a.BlockTile(values) * factor < 2 * a.extent &&
                      std::find(domain.begin(), domain.end(), value * factor) != domain.end();
    if (fits) value *= factor;
    return fits;
  };
  const int64_t threads = int64_t{1} << Weighted(rng, {{5, 1}, {6, 4}, {7, 6}, {8, 4}, {9, 1}});
  const std::vector<size_t> contiguous = ContiguousAxes();
  for (size_t tries = 0; tries < 64 && Threads(values) < threads; ++tries) {
    const bool lane = anywhere ? below(2) == 0 : Threads(values) < target_.warp_size || tries > 32;
    size_t axis = below(axes_.size());
    if (lane && !anywhere && !contiguous.empty() && below(4) != 0) {
      // Neighbours along contiguous axes, and the squarer warp of two.
      axis = contiguous[below(contiguous.size())];
      const size_t other = contiguous[below(contiguous.size())];
      const size_t hole = kLane;
      if (values[axes_[other].first_hole + hole] < values[axes_[axis].first_hole + hole]) {
        axis = other;
      }
    }
    grow(axes_[axis], lane ? kLane : kWarp, 2);
  }
  // Short axes, such as 7 or 14 of an image, want tiles that are no power of two.
  for (const TiledAxis& a : axes_) {
    const auto& tiles = holes_[a.first_hole + kTile].domain;
    const bool odd = a.extent % 8 != 0 && a.extent < kShortAxis;
    if (anywhere || below(odd ? 3 : 24) == 0) grow(a, kTile, tiles[below(tiles.size())]);
    if (anywhere) grow(a, kVthread, int64_t{1} << below(3));
  }
  if (anywhere) return;
  // As many results a thread as fill every multiprocessor once, give or take a factor of two.
  int64_t results = 1, fill = 4;
  for (const TiledAxis& a : axes_) results *= a.extent;
  while (fill < 6 && results >= (target_.sm_count * kFullBlock) << (fill + 1)) ++fill;
  const int64_t accumulators = int64_t{1} << (fill + Weighted(rng, {{-1, 1}, {0, 4}, {1, 5}}));
  for (size_t tries = 0; tries < 32 && Accumulators(values) < accumulators; ++tries) {
    // The flatter of two axes: square tiles reuse most.
    const TiledAxis& one = axes_[below(axes_.size())];
    const TiledAxis& two = axes_[below(axes_.size())];
    const TiledAxis& a = one.ThreadTile(values) < two.ThreadTile(values) ? one : two;
    const bool run = values[a.first_hole + kTile] < kVectorRun ? below(8) != 0 : below(8) == 0;
    grow(a, run ? kTile : kVthread, 2);
  }
}

}  // namespace heddle::search_space
