// What runs ahead of the multiply-adds: fetches of the next tiles, in parts or at once, and reads
// of the next fragments; and how far the loops around them are unrolled.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostUnrolled = 8192;  // multiply-adds

class PipelineDecision : public Decision {
 public:
  PipelineDecision(const TiledKernel& kernel, Holes& holes) : Decision(kernel) {
    const auto where = [](bool there, std::vector<int64_t> domain) {
      return there ? std::move(domain) : std::vector<int64_t>{0};
    };
    const bool copies = kernel.target.has_async_copy;
    depth_ = holes.Add("pipeline",
                       copies ? std::vector<int64_t>{0, 1, 2, 3, 4} : std::vector<int64_t>{0, 1},
                       kKernelGroup);
    unroll_ = holes.Add("unroll", {0, 1}, kKernelGroup);
    ahead_ = holes.Add("prefetch", where(kernel.reduce_axes.size() == 1, {0, 1}), kKernelGroup);
    interleave_ = holes.Add("interleave", where(copies, {0, 1}), kKernelGroup);
  }

  void Draw(const Drawing& d, Tile&) const override {
    if (d.anywhere) return;
    if (d.Weighted({{1, 7}, {0, 1}}) != 0) d[unroll_] = 1;
    if (d[depth_] != kNone) return;
    const auto& depths = d.Domain(depth_);
    const int64_t at = d.Weighted({{0, 1}, {1, 4}, {2, 3}, {3, 3}});
    d[depth_] = depths[static_cast<size_t>(at) % depths.size()];
  }

  void Settle(const Drawing& d, const Tile& tile) const override {
    if (!Overlaps(tile, 0, d[interleave_])) d[interleave_] = 0;
    if (!Overlaps(tile, d[ahead_], d[interleave_])) d[ahead_] = 0;
  }

  void Describe(Tile& tile) const override {
    tile.shared_copies = tile[depth_] == kNone ? 1 : std::max<int64_t>(2, tile[depth_]);
    tile.through_registers = tile[depth_] == kRegisters;
    tile.fragment_copies = 1 + tile[ahead_];
  }

  absl::Status Cost(const Tile& tile, Usage&) const override {
    if (!Overlaps(tile, tile[ahead_], tile[interleave_])) {
      return kernel_.Refuse(absl::StrCat(tile.FragmentReads() / tile.slices,
                                         " iterations of the inner loop, in which nothing runs ",
                                         "ahead or is shared out"));
    }
    const int64_t depth = tile[unroll_] != 0 ? tile.Depth() : tile.Depth() / tile.FragmentReads();
    const int64_t unrolled = tile.Accumulators() * depth;
    if (unrolled <= kMostUnrolled) return absl::OkStatus();
    return kernel_.TooMany(unrolled, "unrolled multiply-adds", kMostUnrolled);
  }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place == Place::kInner && tile[unroll_] != 0 && tile[ahead_] == 0) {
      nest.w.Unroll(nest.inner.back());
    }
    if (place != Place::kPipeline) return;
    if (tile[depth_] != kNone) {
      nest.w.Pipeline(nest.tiles,
                      tile.through_registers ? PipelineKind::kRegisters : PipelineKind::kAsyncCopy,
                      tile.shared_copies);
    }
    const LoopRef& inner = nest.inner[tile.fragment_axis];
    if (tile[ahead_] != 0) nest.w.Pipeline(inner, PipelineKind::kRegisters, 2);
    if (tile[interleave_] != 0) nest.w.Interleave(inner);
  }

 private:
  enum : int64_t { kNone, kRegisters };  // values of `pipeline`; more are copies that deep

  // Fragments that run ahead, through the barriers of a pipeline, and fetches in parts want an
  // inner loop that is unrolled and has iterations to share.
  bool Overlaps(const Tile& tile, int64_t ahead, int64_t interleave) const {
    if (ahead == 0 && interleave == 0) return true;
    const int64_t iterations = tile.FragmentReads() / tile.slices;
    // Copies for the next round are started outside of the reduction.
    if (tile.in_one_tile) return false;
    const bool runs = ahead == 0 || (tile.slices == 1 && iterations % 2 == 0);
    const bool shares = interleave == 0 || (tile[depth_] > kRegisters && iterations - ahead >= 2);
    return tile[depth_] != kNone && tile[unroll_] != 0 && runs && shares;
  }

  HoleId depth_, unroll_, ahead_, interleave_;
};

}  // namespace

std::unique_ptr<Decision> MakePipeline(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<PipelineDecision>(kernel, holes);
}

}  // namespace heddle::search_space
