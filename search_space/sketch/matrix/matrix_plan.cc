#include "search_space/sketch/matrix/matrix_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/sketch/kernels/combine.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostThreads = 512, kMostTrips = 32, kMostParts = 256;

}  // namespace

int64_t MatrixTile::Grid() const {
  int64_t blocks = Blocks(0) * Blocks(1);
  for (size_t x = 0; x < kernel.kernel.axes.size(); ++x) {
    const bool tiled = x == kernel.factors[0].own || x == kernel.factors[1].own;
    if (!tiled && x != kernel.places && x != kernel.over) blocks *= kernel.kernel.axes[x].extent;
  }
  return blocks;
}

int64_t MatrixTile::PartLength() const {
  const int64_t length = CeilDiv(kernel.Shared(), parts);
  return kernel.shared_axis == kernel.depth ? RoundUp(length, depth) : length;
}

int64_t MatrixTile::Staged() const {
  constexpr int64_t kRegister = 4;  // bytes
  int64_t staged = 0;
  for (size_t i = 0; i < 2; ++i) {
    staged += CeilDiv(Trips(i) * kernel.factors[i].vector * SizeOf(kernel.Type()), kRegister);
  }
  return staged;
}

int64_t MatrixTile::ResultVector() const {
  const DType type = kernel.ResultType(parts > 1);
  return std::gcd(kernel.Extent(*kernel.ResultInner()), ElementsOfAccess(type));
}

int64_t MatrixTile::ResultBytes() const {
  const size_t inner = *kernel.ResultInner();
  const DType type = kernel.ResultType(parts > 1);
  return StoredParts() * kernel.StoredPlaces() * block[1 - inner] *
         (block[inner] + ElementsOfAccess(type)) * SizeOf(type);
}

void MatrixTile::AddResult() {
  static constexpr int64_t kLarge = 16 << 10, kPhases = 128;
  if (!is_staged) return;
  const int64_t bytes = RoundUp(ResultBytes(), 16);
  if (bytes < kLarge) {
    shared_bytes = RoundUp(shared_bytes, 16) + bytes;
  } else if (ahead > 0) {
    // The first tiles of a block's next result are fetched while one is stored.
    shared_bytes = std::max(shared_bytes, shared_bytes - (buffers - ahead) * Bytes(1) + bytes);
  } else {
    shared_bytes = std::max(shared_bytes, kPhases + bytes);
  }
}

double MatrixPlan::Waste(HoleValues values) const {
  const MatrixTile t = TileOf(values);
  const auto cover = [](int64_t covered, int64_t extent) {
    return static_cast<double>(covered) / static_cast<double>(extent);
  };
  return cover(t.Blocks(0) * t.block[0], kernel_.Extent(0)) *
         cover(t.Blocks(1) * t.block[1], kernel_.Extent(1)) *
         cover(kernel_.shared_axis == kernel_.depth ? t.parts * t.PartLength()
                                                    : RoundUp(kernel_.Depth(), t.depth),
               kernel_.Depth());
}

void MatrixPlan::Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  static constexpr int kAttempts = 6;
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  // Few draws come from anywhere, so that every valid choice can come up; the others from where
  // fast kernels lie.
  const bool anywhere = below(8) == 0, may_split = below(3) == 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    values.clear();
    for (const Hole& hole : holes_) values.push_back(hole.domain[0]);
    for (size_t h = 0; h < holes_.size(); ++h) {
      std::vector<int64_t> valid, likely;
      for (int64_t value : holes_[h].domain) {
        values[h] = value;
        if (!Check(values).ok()) continue;
        valid.push_back(value);
        if (!anywhere && IsLikely({h}, values, may_split)) likely.push_back(value);
      }
      if (valid.empty()) return;  // Check says why
      const std::vector<int64_t>& from = likely.empty() ? valid : likely;
      values[h] = from[below(from.size())];
    }
    if (anywhere || may_split || TileOf(values).Grid() * 4 >= kernel_.kernel.target.sm_count * 3) {
      break;
    }
  }
}

std::vector<int64_t> MatrixPlan::Swaps() const {
  if (!kernel_.row_parts) return {0, 1};
  return {static_cast<int64_t>(kernel_.row_parts->rows)};
}

std::vector<int64_t> MatrixPlan::Columns(std::vector<int64_t> all, int64_t of_matrix) const {
  if (!kernel_.row_parts) return all;
  std::erase_if(all, [&](int64_t c) { return c * of_matrix != kernel_.row_parts->columns; });
  return all;
}

std::vector<int64_t> MatrixPlan::Parts() const {
  std::vector<int64_t> parts = {1};
  if (!kernel_.StoresElements()) return parts;
  if (kernel_.shared_axis == kernel_.depth) {
    while (parts.back() < kMostParts) parts.push_back(2 * parts.back());
    return parts;
  }
  // Only whole parts: a product that is guarded is none that instructions know.
  for (int64_t p = 2; p <= std::min(kMostParts, kernel_.Shared()); ++p) {
    if (kernel_.Shared() % p == 0) parts.push_back(p);
  }
  return parts;
}

absl::Status MatrixPlan::CheckTile(const MatrixTile& t, int64_t most_accumulators) const {
  const TiledKernel& k = kernel_.kernel;
  for (size_t i = 0; i < 2; ++i) {
    // A tile that is mostly padding is never worth a trial, unless it is the smallest.
    if (t.block[i] > t.unit[i] && t.block[i] >= 2 * kernel_.Extent(i)) {
      return k.TooMany(t.block[i], "elements in a tile", 2 * kernel_.Extent(i));
    }
    const int64_t trips = t.Trips(i);
    if (trips > kMostTrips && !t.is_bulk) return k.TooMany(trips, "fetches a thread", kMostTrips);
  }
  for (size_t i = 0; t.is_bulk && i < 2; ++i) {
    const auto& seam = kernel_.factors[i].seam;
    if (!seam.has_value()) continue;
    const int64_t along = seam->axis == kernel_.factors[i].own ? t.block[i]
                          : seam->axis == kernel_.DepthAxis()  ? t.depth
                                                               : 1;
    if (seam->at % along != 0) {
      return k.Refuse(absl::StrCat("a bulk copy of ", along, " elements is of two tensors, of ",
                                   "which the second begins at ", seam->at));
    }
  }
  if (t.depth > t.step && t.depth >= 2 * kernel_.Depth()) {
    return k.TooMany(t.depth, "terms in a tile", 2 * kernel_.Depth());
  }
  const bool cuts_depth = t.parts > 1 && kernel_.shared_axis == kernel_.depth;
  const int64_t whole = cuts_depth ? t.PartLength() : t.depth;
  if (!kernel_.vanishes && kernel_.Depth() % whole != 0) {
    return k.Refuse(absl::StrCat("the reduction ends inside ", whole,
                                 " terms, past which the factors are not zero"));
  }
  const int64_t most_threads = std::min(kMostThreads, k.target.max_threads_per_block);
  if (t.threads > most_threads) return k.TooMany(t.threads, "threads", most_threads);
  // What is reduced is held as well.
  const int64_t accumulators = t.accumulators * (kernel_.over ? 2 : 1);
  if (accumulators > most_accumulators) {
    return k.TooMany(accumulators, "accumulators", most_accumulators);
  }
  if (t.shared_bytes > k.target.max_shared_bytes_per_block) {
    return k.TooMany(t.shared_bytes, "shared bytes", k.target.max_shared_bytes_per_block);
  }
  HEDDLE_RETURN_IF_ERROR(CheckResult(t));
  const int64_t blocks = std::max<int64_t>(1, t.min_blocks);
  // Blocks that stay must all run at a time; of each the driver takes 1 KB.
  const int64_t reserved = t.ahead > 0 ? 1 << 10 : 0;
  if ((t.shared_bytes + reserved) * blocks > k.target.shared_bytes_per_sm) {
    return k.TooMany(blocks, "blocks a multiprocessor",
                     k.target.shared_bytes_per_sm / t.shared_bytes);
  }
  const int64_t registers =
      std::min(k.target.max_registers_per_thread, k.target.registers_per_sm / (t.threads * blocks));
  const int64_t needed = t.registers + accumulators - t.accumulators;
  if (needed > registers) return k.TooMany(needed, "registers", registers);
  return CheckGrid(t);
}

absl::Status MatrixPlan::CheckResult(const MatrixTile& t) const {
  if (!t.is_staged) return absl::OkStatus();
  const int64_t round = t.threads * t.ResultVector();
  if (kernel_.StoredPlaces() * t.block[0] * t.block[1] % round != 0 ||
      t.block[*kernel_.ResultInner()] % t.ResultVector() != 0) {
    return kernel_.kernel.Refuse(
        absl::StrCat("the result's tile is not stored in whole rounds of ", round, " elements"));
  }
  return absl::OkStatus();
}

absl::Status MatrixPlan::CheckGrid(const MatrixTile& t) const {
  const TiledKernel& k = kernel_.kernel;
  const int64_t grid = t.Grid(), sms = k.target.sm_count;
  if (grid > k.target.max_grid / t.parts) return k.TooMany(grid, "blocks", k.target.max_grid);
  if (t.parts > 1 && (grid >= 2 * sms || grid * t.parts > 16 * sms)) {
    return k.Refuse(absl::StrCat(grid, " blocks need no reduction split ", t.parts, " times"));
  }
  if (CeilDiv(kernel_.Shared(), t.PartLength()) != t.parts) {
    return k.Refuse(absl::StrCat(t.parts, " parts of ", t.PartLength(), " are not all needed"));
  }
  if (t.ahead > 0 && grid * t.parts <= t.Resident()) {
    return k.Refuse(
        absl::StrCat(grid * t.parts, " blocks need not stay: ", t.Resident(), " run at a time"));
  }
  // Blocks of whole rows are in the order of the product's axes.
  const size_t outer = kernel_.StoresRowParts() ? kernel_.row_parts->rows : 0;
  const size_t in_grid = k.axes.size() - (kernel_.places || kernel_.over ? 1 : 0);
  const bool is_grid = in_grid == 2 && t.parts == 1 && t.Blocks(outer) % t.raster == 0;
  if (t.raster > 1 && !is_grid) return k.TooMany(t.raster, "rows of blocks in a group", 1);
  return absl::OkStatus();
}

const ScheduledStage& MatrixPlan::Stage(const ScheduleWriter& w, const StageRef& stage) {
  const Schedule& schedule = w.schedule();
  return schedule.stage(schedule.FindStage(stage.tensor.get()));
}

MatrixPlan::Begun MatrixPlan::Begin(ScheduleWriter& w, const MatrixTile& t) const {
  const TiledKernel& k = kernel_.kernel;
  Begun begun{.root = k.root, .sum = k.reduction};
  for (const BufferRef& stage : kernel_.inlined) w.ComputeInline({stage});
  // The factors become stages of their own while the sum is what they were found in.
  std::vector<BufferRef> inlined;
  for (const Factor& factor : kernel_.factors) {
    const Operand& in = factor.operand;
    begun.factors.push_back(w.GatherRead(k.reduction, static_cast<int64_t>(in.number)));
    for (const BufferRef& stage : in.inlined) {
      if (std::find(inlined.begin(), inlined.end(), stage) == inlined.end()) {
        inlined.push_back(stage);
      }
    }
  }
  for (const BufferRef& stage : inlined) w.ComputeInline({stage});
  if (t.parts > 1) {
    const LoopRef shared = w.ReduceLoops(k.reduction)[kernel_.shared_axis];
    begun.sum = w.Rfactor(w.Split(shared, t.PartLength())[0]);
    const std::vector<StageRef> partials = w.Materialize(begun.sum, k.reduction);
    begun.root = partials[0];
    begun.blocks = {w.Loops(begun.root)[0]};
    WriteCombineKernel(w, {k.root, k.reduction, partials, t.parts}, k.target);
  }
  begun.result = begun.root;
  if (t.is_staged) StageResult(w, t, begun);
  if (t.StoredParts() > 1) begun.parts = {w.Loops(begun.result)[0]};
  return begun;
}

LoopRef MatrixPlan::BindBlocks(ScheduleWriter& w, const MatrixTile& t, const Begun& begun,
                               const LoopList& blocks) {
  const LoopRef block = w.Fuse(blocks);
  w.Bind(block, BindTo::kBlock);
  if (t.raster > 1) w.BlockSwizzle(begun.root, t.raster);
  if (t.min_blocks > 0) w.LaunchBounds(begun.root, t.min_blocks);
  if (t.ahead > 0) w.Persist(begun.root, t.Resident());
  return block;
}

// The root's loops: a block's threads store its tile of the result line by line.
void MatrixPlan::StageResult(ScheduleWriter& w, const MatrixTile& t, Begun& begun) const {
  begun.result = w.CacheWrite(begun.root, Scope::kShared);
  const size_t inner = *kernel_.ResultInner();
  const LoopList axes = w.Loops(begun.root);
  const size_t first = FirstResultAxis(axes.size());
  LoopList blocks = std::exchange(begun.blocks, {}), lines, vector;
  if (t.StoredParts() > 1) lines.push_back(axes[0]);
  size_t next = first;
  for (size_t x = 0; x < kernel_.kernel.axes.size(); ++x) {
    if (kernel_.IsLost(x)) continue;
    const LoopRef& axis = axes[next++];
    if (x == kernel_.places) {
      lines.push_back(axis);
    } else if (x == kernel_.factors[inner].own) {
      const int64_t chunks = t.block[inner] / t.ResultVector();
      const auto parts = w.Split(axis, chunks, t.ResultVector());
      blocks.push_back(parts[0]);
      lines.push_back(parts[1]);
      vector.push_back(parts[2]);
    } else if (x == kernel_.factors[1 - inner].own) {
      const auto parts = w.Split(axis, t.block[1 - inner]);
      blocks.push_back(parts[0]);
      lines.push_back(parts[1]);
    } else {
      blocks.push_back(axis);
    }
  }
  w.Reorder(Join({blocks, lines, vector}));
  const LoopRef block = BindBlocks(w, t, begun, blocks);
  const auto [round, thread] = w.Split(w.Fuse(lines), t.threads);
  w.Reorder(Join({{block, thread, round}, vector}));
  w.Bind(thread, BindTo::kThread);
  w.Unroll(round);
  if (t.ResultVector() > 1) w.Vectorize(vector[0]);

  w.ComputeAt(begun.result, block);
  std::vector<size_t> order(Stage(w, begun.result).axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  w.StorageLayout(begun.result, order, ElementsOfAccess(begun.root.tensor->dtype), 0);
  if (first > 0 && t.parts > 1) begun.blocks = {w.Loops(begun.result)[0]};
}

MatrixPlan::Result MatrixPlan::SplitResult(ScheduleWriter& w, const MatrixTile& t,
                                           const Begun& begun, const std::vector<int64_t>& rows,
                                           const std::vector<int64_t>& cols) const {
  if (kernel_.StoresRowParts()) return SplitRowParts(w, t, begun, rows, cols);
  Result result{.blocks = begun.blocks};
  const LoopList axes = w.Loops(begun.result);
  size_t next = FirstResultAxis(axes.size());
  for (size_t x = 0; x < kernel_.kernel.axes.size(); ++x) {
    if (kernel_.IsLost(x)) continue;
    const LoopRef& axis = axes[next++];
    if (x == kernel_.places) {
      result.places = {axis};
    } else if (x == kernel_.factors[t.a].own) {
      result.row = w.Split(axis, rows);
      result.blocks.push_back(result.row[0]);
    } else if (x == kernel_.factors[1 - t.a].own) {
      result.col = w.Split(axis, cols);
      result.blocks.push_back(result.col[0]);
    } else {
      result.blocks.push_back(axis);
    }
  }
  return result;
}

// A group of the columns has one part of a row, and the lanes of a row store what it is of each
// reduction.
MatrixPlan::Result MatrixPlan::SplitRowParts(ScheduleWriter& w, const MatrixTile& t,
                                             const Begun& begun, const std::vector<int64_t>& rows,
                                             const std::vector<int64_t>& cols) const {
  Result result;
  const LoopList axes = w.Loops(begun.result);
  const size_t along = kernel_.row_parts->along;
  for (size_t x = 0; x < kernel_.kernel.axes.size(); ++x) {
    if (x == along) continue;
    const LoopRef& axis = axes[x < along ? x : x - 1];
    if (x == kernel_.factors[t.a].own) {
      result.row = w.Split(axis, rows);
      result.blocks.push_back(result.row[0]);
    } else {
      result.blocks.push_back(axis);
    }
  }
  const LoopList parts = w.Split(axes.back(), {cols[0]});
  const LoopList numbers = w.Split(axes[axes.size() - 2], {cols[cols.size() - 2], 1});
  result.blocks.push_back(parts[0]);
  result.col = Join({parts, numbers});
  return result;
}

// Each where the rows lie, once the product is there.
void MatrixPlan::ReduceRows(ScheduleWriter& w, MatrixInstruction instruction,
                            const LoopRef& thread) const {
  const RowParts& parts = *kernel_.row_parts;
  const size_t own = kernel_.factors[parts.rows].own;
  for (auto s = parts.reductions.rbegin(); s != parts.reductions.rend(); ++s) {
    w.SetScope(*s, Scope::kLocal);
    w.RowFragment(*s, instruction, Stage(w, *s).axes[own < parts.along ? own : own - 1]->name);
    w.ComputeAt(*s, thread);
  }
}

void MatrixPlan::BindResult(ScheduleWriter& w, const MatrixTile& t, const Begun& begun,
                            const Result& result, const LoopList& threads, const LoopList& held,
                            MatrixInstruction instruction) const {
  LoopList walked = {held.begin(), held.end() - 1};
  LoopList several = Join({result.places, begun.parts}), stored = {held.back()};
  // Elements of all places lie closest in memory where these are the last axis.
  if (!result.places.empty() && kernel_.places == kernel_.kernel.axes.size() - 1) {
    walked = held;
    several = begun.parts;
    stored = result.places;
  }
  w.Reorder(Join({result.blocks, threads, walked, several, stored}));
  for (const LoopRef& each : several) w.Unroll(each);
  if (!t.is_staged) BindBlocks(w, t, begun, result.blocks);
  const LoopRef thread = w.Fuse(threads);
  w.Bind(thread, BindTo::kThread);
  if (kernel_.row_parts) ReduceRows(w, instruction, thread);
  if (!kernel_.StoresRowParts()) w.Vectorize(stored[0]);

  const LoopRef around = kernel_.over ? ReduceElements(w, t, instruction, thread) : thread;
  w.SetScope(begun.sum, Scope::kLocal);
  const std::vector<Var> axes = Stage(w, begun.sum).axes;
  const size_t first = FirstAxis(axes.size());
  w.Fragment(begun.sum, instruction, MatrixOperand::kD,
             axes[first + kernel_.factors[t.a].own]->name,
             axes[first + kernel_.factors[1 - t.a].own]->name);
  w.ComputeAt(begun.sum, around);
}

// What reduces the product's elements, as these lie; returns the loop in which each is made anew.
LoopRef MatrixPlan::ReduceElements(ScheduleWriter& w, const MatrixTile& t,
                                   MatrixInstruction instruction, const LoopRef& thread) const {
  const StageRef& reduced = *kernel_.reduced;
  w.SetScope(reduced, Scope::kLocal);
  const std::vector<Var> axes = Stage(w, reduced).axes;
  const auto name_of = [&](size_t own) { return axes[own - (own > *kernel_.over ? 1 : 0)]->name; };
  w.Fragment(reduced, instruction, MatrixOperand::kD, name_of(kernel_.factors[t.a].own),
             name_of(kernel_.factors[1 - t.a].own));
  w.ComputeAt(reduced, thread);
  const LoopRef over = w.ReduceLoops(reduced)[0];
  w.Reorder(Join({{over}, w.DataLoops(reduced)}));
  return over;
}

MatrixPlan::DepthLoops MatrixPlan::SplitDepth(ScheduleWriter& w, const StageRef& sum, int64_t steps,
                                              int64_t terms) const {
  const LoopList axes = w.ReduceLoops(sum);
  const auto parts = w.Split(axes[kernel_.depth], steps, terms);
  DepthLoops loops{parts[0], parts[1], parts[2], {}};
  if (axes.size() == 1) return loops;
  // A window is walked inside of what it moves over, most of which it reads again.
  LoopList walked, windows;
  for (size_t r = 0; r < axes.size(); ++r) {
    if (r == kernel_.depth) continue;
    if (r == kernel_.factors[0].parts || r == kernel_.factors[1].parts) {
      loops.parts.push_back(axes[r]);
      continue;
    }
    (kernel_.kernel.reduce_axes[r].is_window() ? windows : walked).push_back(axes[r]);
  }
  const LoopList all = Join({walked, {loops.tiles}, windows});
  w.Reorder(Join({all, {loops.step}, loops.parts, {loops.terms}}));
  loops.tiles = w.Fuse(all);
  for (const LoopRef& part : loops.parts) w.Unroll(part);
  return loops;
}

}  // namespace heddle::search_space
