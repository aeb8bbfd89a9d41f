// Over how many blocks a reduction is split, for results too small to fill the device. The partial
// results are written to a tensor in global memory, whose axes are the parts and the result's; the
// kernel's own stage adds them up.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/kernels/combine.h"
#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostParts = 256;
// Of so many terms each there may be more: a few columns of many rows need them to keep enough of
// memory's requests under way.
constexpr int64_t kMostLongParts = 2048, kLongPart = 64;
constexpr int64_t kShort = 128;  // terms: powers of two leave the parts of fewer unequal

std::vector<int64_t> PartsOf(int64_t terms) {
  const int64_t most = std::max(kMostParts, std::min(kMostLongParts, terms / kLongPart));
  std::vector<int64_t> parts = PowersUpTo(terms / 2, most);
  for (int64_t p = 3; terms <= kShort && p <= terms / 2; ++p) {
    if (terms % p == 0 && (p & (p - 1)) != 0) parts.push_back(p);
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

class SplitDecision : public Decision {
 public:
  SplitDecision(const TiledKernel& kernel, Holes& holes)
      : Decision(kernel), domain_(PartsOf(kernel.reduce_axes[kernel.shared_axis].extent)) {
    parts_ = holes.Add("split_k", domain_, kReductionGroup);
  }

  // Where the blocks are few, any number of parts is as likely.
  void Draw(const Drawing& d, Tile& tile) const override {
    std::vector<int64_t> valid;
    for (int64_t parts : d.Domain(parts_)) {
      tile.parts = parts;
      if (Limits(tile).ok()) valid.push_back(parts);
    }
    d[parts_] = valid[d.Below(valid.size())];
  }

  void Describe(Tile& tile) const override { tile.parts = tile[parts_]; }
  absl::Status Cost(const Tile& tile, Usage&) const override { return Limits(tile); }

  void Write(Place place, const Tile& tile, Nest& nest) const override {
    if (place != Place::kReduction || tile.parts == 1) return;
    const LoopRef shared = nest.w.ReduceLoops(kernel_.reduction)[kernel_.shared_axis];
    nest.reduction = nest.w.Rfactor(nest.w.Split(shared, tile.PartLength())[0]);
    const std::vector<StageRef> partials = nest.w.Materialize(nest.reduction, kernel_.reduction);
    nest.stage = partials[0];
    nest.blocks = {nest.w.Loops(nest.stage)[0]};
    WriteCombineKernel(nest.w, {kernel_.root, kernel_.reduction, partials, tile.NeededParts()},
                       kernel_.target);
  }

 private:
  absl::Status Limits(const Tile& tile) const {
    const int64_t parts = tile.parts, tiles = tile.Tiles(), sms = kernel_.target.sm_count;
    if (parts == 1) return absl::OkStatus();
    if (tiles >= 2 * sms || tiles * parts > 16 * sms) {
      return kernel_.Refuse(
          absl::StrCat(tiles, " blocks need no reduction split ", parts, " times"));
    }
    // Parts are of whole tiles, so that there may be some fewer; where the domain has as many, or
    // half, they are that choice.
    const int64_t needed = tile.NeededParts();
    const bool is_other =
        needed != parts && std::find(domain_.begin(), domain_.end(), needed) != domain_.end();
    if (is_other || 2 * needed <= parts) {
      return kernel_.Refuse(
          absl::StrCat(parts, " parts of ", tile.PartLength(), " are not all needed"));
    }
    return absl::OkStatus();
  }

  const std::vector<int64_t> domain_;
  HoleId parts_;
};

}  // namespace

std::unique_ptr<Decision> MakeSplit(const TiledKernel& kernel, Holes& holes) {
  return std::make_unique<SplitDecision>(kernel, holes);
}

}  // namespace heddle::search_space
