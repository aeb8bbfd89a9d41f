#include "search_space/sketch/tiling/decision.h"

#include <algorithm>

#include "base/status.h"

namespace heddle::search_space {

std::vector<int64_t> PowersUpTo(int64_t most, int64_t enough) {
  std::vector<int64_t> out = {1};
  while (out.back() * 2 <= most && out.back() < enough) out.push_back(out.back() * 2);
  return out;
}

int64_t WidestVector(int64_t run, DType type) {
  int64_t vector = ElementsOfAccess(type);
  while (run % vector != 0) vector /= 2;
  return vector;
}

int64_t Drawing::Weighted(std::initializer_list<std::pair<int64_t, int>> choices) const {
  int total = 0;
  for (const auto& c : choices) total += c.second;
  int at = std::uniform_int_distribution<int>(0, total - 1)(rng);
  for (const auto& c : choices) {
    if ((at -= c.second) < 0) return c.first;
  }
  return choices.begin()->first;
}

Decisions::Decisions(const TiledKernel& kernel, absl::Span<MakeDecision* const> make, Holes& holes)
    : kernel_(kernel) {
  for (MakeDecision* one : make) decisions_.push_back(one(kernel, holes));
}

Tile Decisions::TileOf(HoleValues values) const {
  Tile tile{.kernel = kernel_, .values = values};
  for (const auto& d : decisions_) d->Describe(tile);
  return tile;
}

void Decisions::Draw(const Drawing& drawing, Tile& tile) const {
  for (const auto& d : decisions_) {
    d->Draw(drawing, tile);
    d->Describe(tile);
  }
  for (const auto& d : decisions_) d->Settle(drawing, tile);
}

absl::Status Decisions::Cost(const Tile& tile, Usage& usage) const {
  for (const auto& d : decisions_) {
    HEDDLE_RETURN_IF_ERROR(d->Cost(tile, usage));
  }
  return absl::OkStatus();
}

void Decisions::Write(Place place, const Tile& tile, Nest& nest) const {
  for (const auto& d : decisions_) d->Write(place, tile, nest);
}

void Decisions::WriteKernel(const Tile& tile, Nest& nest) const {
  Write(Place::kReduction, tile, nest);
  Write(Place::kLoops, tile, nest);
  if (nest.slowest.has_value()) {
    const auto blocks = nest.blocks.begin();
    std::rotate(blocks, blocks + static_cast<std::ptrdiff_t>(*nest.slowest),
                blocks + static_cast<std::ptrdiff_t>(*nest.slowest) + 1);
    if (nest.reversed) nest.w.Reverse(nest.blocks[0]);
  }
  nest.w.Reorder(Join({nest.blocks, nest.vthreads, nest.threads, nest.elements}));
  nest.w.Bind(nest.w.Fuse(nest.blocks), BindTo::kBlock);
  Write(Place::kGrid, tile, nest);
  for (const LoopRef& loop : nest.vthreads) nest.w.Bind(loop, BindTo::kVthread);
  nest.thread = nest.w.Fuse(nest.threads);
  nest.w.Bind(nest.thread, BindTo::kThread);
  Write(Place::kKernel, tile, nest);
  WriteReduction(tile, nest);
}

void Decisions::WriteReduction(const Tile& tile, Nest& nest) const {
  nest.w.SetScope(nest.reduction, Scope::kLocal);
  nest.w.ComputeAt(nest.reduction, nest.thread);
  for (Place place : {Place::kTiles, Place::kInner, Place::kOperands, Place::kPipeline}) {
    Write(place, tile, nest);
  }
}

absl::Status CheckUsage(const TiledKernel& kernel, const Tile& tile, const Usage& usage) {
  const Target& target = kernel.target;
  if (usage.shared_bytes > target.max_shared_bytes_per_block) {
    return kernel.TooMany(usage.shared_bytes, "shared bytes", target.max_shared_bytes_per_block);
  }
  const int64_t threads = RoundUp(tile.Threads(), 32) * tile.blocks_per_sm;
  const int64_t most = std::min(target.max_registers_per_thread, target.registers_per_sm / threads);
  if (usage.registers > most) return kernel.TooMany(usage.registers, "registers", most);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
