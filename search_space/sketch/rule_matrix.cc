// Products of matrices of 16-bit numbers on the units that multiply small matrices.
//
// A block makes a tile of the result, a warp a part of that, which its lanes hold together as the
// instruction lays it out. Tiles of both operands wait in shared memory, several of them on their
// way at once; a warp reads its rows and columns of a step of 16 along the reduction, and
// multiplies them all with one another. What the kernel does with the sums is computed where they
// lie.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/operands.h"
#include "search_space/sketch/combine.h"
#include "search_space/sketch/rules.h"
#include "search_space/sketch/tiling/tiled_kernel.h"

namespace heddle::search_space {
namespace {

constexpr MatrixInstruction kInstruction = MatrixInstruction::kM16N8K16;
constexpr int64_t kOtherRegisters = 40;  // addresses, loop counters, temporaries
constexpr int64_t kMostAccumulators = 128, kMostThreads = 512, kMostTrips = 32, kMostParts = 256;
constexpr int64_t kLine = 8;  // elements of 16 bytes, which LoadMatrix reads at once

// One of the two matrices, as it is read.
struct Factor {
  Operand operand;
  std::vector<size_t> axes;  // in memory order; the reduction's is behind the data axes
  size_t own;                // the data axis, of those that the other factor does not have, to tile
  int64_t vector = 1;        // elements of the widest access
  bool is_copied = false;    // may asynchronous copies fetch it?
};

// `operand` is factor of a product if it is made of 16-bit numbers, element by element.
bool MakeFactor(const TiledKernel& kernel, const Operand& operand, const Expr& value,
                Factor& factor) {
  if (!ShapeOf(kInstruction).Takes(operand.dtype)) return false;
  const OperandTile& tile = operand.tiles.back();
  for (size_t d = 0; d < tile.dims.size(); ++d) {
    if (!tile.unit[d] || tile.dims[d].size() != 1) return false;
    factor.axes.push_back(tile.dims[d][0].axis);
  }
  factor.operand = operand;
  // Other loads may begin anywhere in a row.
  const bool is_plain = value->op == Op::kLoad && !operand.is_stage;
  while (is_plain && factor.vector < kLine && tile.row_extent % (2 * factor.vector) == 0) {
    factor.vector *= 2;
  }
  factor.is_copied = is_plain && factor.vector > 1 && kernel.target.has_async_copy;
  return true;
}

struct MatrixKernel {
  TiledKernel kernel;
  Factor factors[2];  // in the order of the axes that they bring to the result

  static std::optional<MatrixKernel> Find(const ProgramShape& shape, const KernelShape& of,
                                          const Target& target) {
    const auto tiled = FindTiledKernel(shape, of, target);
    if (!tiled.has_value() || !ShapeOf(kInstruction).IsOn(target)) return std::nullopt;
    const ScheduledStage& sum = shape.stage(of.reductions[0]);
    const Operands operands = OperandsOf(sum);
    const bool is_product = sum.combiner == Combiner::kSum && operands.body->op == Op::kMul &&
                            sum.tensor->dtype == ShapeOf(kInstruction).result &&
                            tiled->operands.size() == 2 && tiled->held.empty() &&
                            tiled->results == 1 && tiled->reduce_axes.size() == 1;
    if (!is_product) return std::nullopt;
    MatrixKernel found{.kernel = *tiled};
    for (size_t i = 0; i < 2; ++i) {
      const Operand& operand = tiled->operands[i];
      const Expr& value = operands.list[operand.number];
      const Expr& side = operands.body->args[i];
      // Nothing is computed with a factor but its conversion.
      const bool is_bare = side->op == Op::kCast && StructurallyEqual(side->args[0], value);
      if (!is_bare || !MakeFactor(*tiled, operand, value, found.factors[i])) return std::nullopt;
    }
    if (found.factors[0].operand.dtype != found.factors[1].operand.dtype) return std::nullopt;
    if (!found.ChooseAxes(0) || !found.ChooseAxes(1)) return std::nullopt;
    if (found.factors[0].own > found.factors[1].own) {
      std::swap(found.factors[0], found.factors[1]);
    }
    return found;
  }

  int64_t Extent(size_t factor) const { return kernel.axes[factors[factor].own].extent; }
  int64_t Depth() const { return kernel.reduce_axes[0].extent; }

 private:
  // The longest axis that only this factor has; each element of the others is a block's.
  bool ChooseAxes(size_t i) {
    const std::vector<size_t>& other = factors[1 - i].axes;
    int64_t longest = 0;
    for (size_t axis : factors[i].axes) {
      if (axis >= kernel.axes.size()) continue;
      if (std::find(other.begin(), other.end(), axis) != other.end()) continue;
      if (kernel.axes[axis].extent <= longest) continue;
      longest = kernel.axes[axis].extent;
      factors[i].own = axis;
    }
    return longest > 0;
  }
};

class MatrixPlan : public KernelPlan {
 public:
  explicit MatrixPlan(MatrixKernel kernel) : kernel_(std::move(kernel)) {
    const bool copies = kernel_.factors[0].is_copied && kernel_.factors[1].is_copied;
    // In the order in which they are drawn. The first value of each takes least.
    Add(kSwap, "swap", {0, 1});
    Add(kRowWarps, "m.warps", {1, 2, 4, 8});
    Add(kColWarps, "n.warps", {1, 2, 4, 8});
    Add(kRowTiles, "m.tiles", {1, 2, 3, 4, 6, 8});
    Add(kColTiles, "n.tiles", {1, 2, 3, 4, 6, 8, 12, 16});
    Add(kSteps, "k.steps", {1, 2, 4, 8});
    Add(kParts, "split_k", PowersOfTwo(kMostParts));
    Add(kPipeline, "pipeline",
        copies ? std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6} : std::vector<int64_t>{0, 1});
    Add(kAhead, "prefetch", {0, 1});
    Add(kRaster, "block_swizzle", {1, 2, 4, 8, 16});
    Add(kBlocks, "min_blocks", {0, 1, 2, 3});
  }

  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }

  absl::Status Check(HoleValues values) const override {
    const Tile t(kernel_, values);
    const TiledKernel& k = kernel_.kernel;
    for (size_t i = 0; i < 2; ++i) {
      // A tile that is mostly padding is never worth a trial, unless it is the smallest.
      if (t.block[i] > t.unit[i] && t.block[i] >= 2 * kernel_.Extent(i)) {
        return k.TooMany(t.block[i], "elements in a tile", 2 * kernel_.Extent(i));
      }
      const int64_t trips = t.Trips(i);
      if (trips > kMostTrips) return k.TooMany(trips, "fetches a thread", kMostTrips);
    }
    if (t.depth > kStep && t.depth >= 2 * kernel_.Depth()) {
      return k.TooMany(t.depth, "terms in a tile", 2 * kernel_.Depth());
    }
    const int64_t most_threads = std::min(kMostThreads, k.target.max_threads_per_block);
    if (t.threads > most_threads) return k.TooMany(t.threads, "threads", most_threads);
    if (t.accumulators > kMostAccumulators) {
      return k.TooMany(t.accumulators, "accumulators", kMostAccumulators);
    }
    const int64_t shared = t.SharedBytes();
    if (shared > k.target.max_shared_bytes_per_block) {
      return k.TooMany(shared, "shared bytes", k.target.max_shared_bytes_per_block);
    }
    const int64_t blocks = std::max<int64_t>(1, t[kBlocks]);
    if (shared * blocks > k.target.shared_bytes_per_sm) {
      return k.TooMany(blocks, "blocks a multiprocessor", k.target.shared_bytes_per_sm / shared);
    }
    const int64_t registers = std::min(k.target.max_registers_per_thread,
                                       k.target.registers_per_sm / (t.threads * blocks));
    if (t.Registers() > registers) return k.TooMany(t.Registers(), "registers", registers);
    if (t[kAhead] != 0 && (t[kPipeline] == 0 || t[kSteps] % 2 != 0)) {
      return k.Refuse("registers run ahead through an even number of steps of a pipeline");
    }
    return CheckGrid(t);
  }

  double Waste(HoleValues values) const override {
    const Tile t(kernel_, values);
    const auto cover = [](int64_t covered, int64_t extent) {
      return static_cast<double>(covered) / static_cast<double>(extent);
    };
    return cover(t.Blocks(0) * t.block[0], kernel_.Extent(0)) *
           cover(t.Blocks(1) * t.block[1], kernel_.Extent(1)) *
           cover(t[kParts] * t.PartLength(), kernel_.Depth());
  }

  // Hole after hole, of the values for which there are some for those behind it.
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    static constexpr int kAttempts = 6;
    const auto below = [&](size_t n) {
      return std::uniform_int_distribution<size_t>(0, n - 1)(rng);
    };
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
          if (!anywhere && IsLikely(static_cast<HoleNumber>(h), values, may_split)) {
            likely.push_back(value);
          }
        }
        const std::vector<int64_t>& from = likely.empty() ? valid : likely;
        values[h] = from[below(from.size())];
      }
      const Tile t(kernel_, values);
      if (anywhere || may_split || t.Grid() * 4 >= kernel_.kernel.target.sm_count * 3) break;
    }
  }

 protected:
  void Write(ScheduleWriter& w, HoleValues values) const override;

 private:
  enum HoleNumber : uint8_t {
    kSwap,      // 1: the first factor is B, whose tiles are of 8
    kRowWarps,  // warps along the rows, and the columns, of the result
    kColWarps,
    kRowTiles,  // of a warp
    kColTiles,
    kSteps,     // of 16 along the reduction, in a tile in shared memory
    kParts,     // of the reduction, over blocks
    kPipeline,  // 0: none, 1: through registers, more: copies, in so many buffers
    kAhead,     // are the fragments of the next step read beside the products of one?
    kRaster,
    kBlocks
  };

  static constexpr int64_t kStep = 16;

  // What a choice makes of the kernel. The factors by their numbers in MatrixKernel.
  struct Tile {
    Tile(const MatrixKernel& kernel, HoleValues values) : kernel(kernel), values(values) {
      const MatrixShape& shape = ShapeOf(kInstruction);
      a = (*this)[kSwap] != 0 ? 1 : 0;
      unit[a] = shape.m;
      unit[1 - a] = shape.n;
      block[a] = shape.m * (*this)[kRowTiles] * (*this)[kRowWarps];
      block[1 - a] = shape.n * (*this)[kColTiles] * (*this)[kColWarps];
      depth = shape.k * (*this)[kSteps];
      threads = FragmentLayout::kLanes * (*this)[kRowWarps] * (*this)[kColWarps];
      accumulators =
          (*this)[kRowTiles] * (*this)[kColTiles] * shape.Layout(MatrixOperand::kD).elements();
      buffers = (*this)[kPipeline] == 0 ? 1 : std::max<int64_t>(2, (*this)[kPipeline]);
    }
    int64_t operator[](HoleNumber hole) const { return values[hole]; }

    int64_t Blocks(size_t i) const { return CeilDiv(kernel.Extent(i), block[i]); }
    int64_t Grid() const {  // without parts
      int64_t blocks = Blocks(0) * Blocks(1);
      for (size_t x = 0; x < kernel.kernel.axes.size(); ++x) {
        const bool tiled = x == kernel.factors[0].own || x == kernel.factors[1].own;
        if (!tiled) blocks *= kernel.kernel.axes[x].extent;
      }
      return blocks;
    }
    int64_t PartLength() const {
      return CeilDiv(CeilDiv(kernel.Depth(), (*this)[kParts]), depth) * depth;
    }
    int64_t Trips(size_t i) const {
      return CeilDiv(block[i] * depth, threads * kernel.factors[i].vector);
    }
    int64_t SharedBytes() const {
      int64_t bytes = 0;
      for (int64_t rows : block) bytes += (rows * depth * 2 + 127) / 128 * 128 * buffers;
      return bytes;
    }
    int64_t Registers() const {
      const int64_t fragments = (*this)[kRowTiles] * 4 + (*this)[kColTiles] * 2;
      int64_t registers = kOtherRegisters + accumulators + fragments * (1 + (*this)[kAhead]);
      for (size_t i = 0; i < 2 && (*this)[kPipeline] == 1; ++i) {
        registers += CeilDiv(Trips(i) * kernel.factors[i].vector, 2);
      }
      return registers;
    }

    const MatrixKernel& kernel;
    HoleValues values;
    size_t a = 0;                         // the factor that is operand A
    int64_t unit[2] = {}, block[2] = {};  // elements of a matrix, and of a block's tile
    int64_t depth = 0, threads = 0, accumulators = 0, buffers = 0;
  };

  void Add(HoleNumber number, const char* name, std::vector<int64_t> domain) {
    static constexpr int kGroups[] = {0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3};
    holes_.push_back({name, std::move(domain), kGroups[number]});
  }

  static std::vector<int64_t> PowersOfTwo(int64_t most) {
    std::vector<int64_t> powers = {1};
    while (powers.back() < most) powers.push_back(2 * powers.back());
    return powers;
  }

  absl::Status CheckGrid(const Tile& t) const {
    const TiledKernel& k = kernel_.kernel;
    const int64_t parts = t[kParts], grid = t.Grid(), sms = k.target.sm_count;
    if (grid > k.target.max_grid / parts) return k.TooMany(grid, "blocks", k.target.max_grid);
    if (parts > 1 && (grid >= 2 * sms || grid * parts > 16 * sms)) {
      return k.Refuse(absl::StrCat(grid, " blocks need no reduction split ", parts, " times"));
    }
    if (CeilDiv(kernel_.Depth(), t.PartLength()) != parts) {
      return k.Refuse(absl::StrCat(parts, " parts of ", t.PartLength(), " are not all needed"));
    }
    const bool is_grid = k.axes.size() == 2 && parts == 1 && t.Blocks(0) % t[kRaster] == 0;
    if (t[kRaster] > 1 && !is_grid) return k.TooMany(t[kRaster], "rows of blocks in a group", 1);
    return absl::OkStatus();
  }

  bool IsLikely(HoleNumber hole, HoleValues values, bool may_split) const {
    const Tile t(kernel_, values);
    switch (hole) {
      case kSwap:
        return (t[kSwap] != 0) == (kernel_.Extent(0) < kernel_.Extent(1) && kernel_.Extent(0) < 16);
      case kColWarps:
        return t.threads == 128 || t.threads == 256;
      case kRowTiles:
        return t[kRowTiles] >= 2 && t[kRowTiles] <= 4;
      case kColTiles:
        return t.accumulators >= 32;
      case kSteps:
        return t[kSteps] >= 2 && t[kSteps] <= 4;
      case kParts:
        return t[kParts] == 1 || may_split;
      case kPipeline:
        return t[kPipeline] >= 3;
      default:
        return true;
    }
  }

  std::vector<StageRef> WriteGathers(ScheduleWriter& w) const;
  void WriteOperand(ScheduleWriter& w, const Tile& t, size_t i, const StageRef& shared,
                    const StageRef& sum, const LoopRef& tiles, const LoopRef& step) const;

  const MatrixKernel kernel_;
};

const ScheduledStage& Stage(const ScheduleWriter& w, const StageRef& stage) {
  const Schedule& schedule = w.schedule();
  return schedule.stages()[static_cast<size_t>(schedule.FindStage(stage.tensor.get()))];
}

// The factors as stages of their own, while the sum is what they were found in.
std::vector<StageRef> MatrixPlan::WriteGathers(ScheduleWriter& w) const {
  std::vector<StageRef> stages;
  std::vector<BufferRef> inlined;
  for (const Factor& factor : kernel_.factors) {
    const Operand& in = factor.operand;
    stages.push_back(w.GatherRead(kernel_.kernel.reduction, static_cast<int64_t>(in.number)));
    for (const BufferRef& stage : in.inlined) {
      if (std::find(inlined.begin(), inlined.end(), stage) == inlined.end()) {
        inlined.push_back(stage);
      }
    }
  }
  for (const BufferRef& stage : inlined) w.ComputeInline({stage});
  return stages;
}

// Tiles of a factor in shared memory, and what a warp reads of them in a step.
void MatrixPlan::WriteOperand(ScheduleWriter& w, const Tile& t, size_t i, const StageRef& shared,
                              const StageRef& sum, const LoopRef& tiles,
                              const LoopRef& step) const {
  const Factor& factor = kernel_.factors[i];
  w.SetScope(shared, Scope::kShared);
  w.ComputeAt(shared, tiles);
  // Rows or columns of the matrices lie one behind the other.
  const size_t reduced = kernel_.kernel.axes.size();
  const bool is_line = factor.axes.back() == reduced || factor.axes.back() == factor.own;
  std::vector<size_t> order;
  for (size_t d = 0; d < factor.axes.size(); ++d) {
    if (is_line || factor.axes[d] != reduced) order.push_back(d);
  }
  for (size_t d = 0; d < factor.axes.size() && !is_line; ++d) {
    if (factor.axes[d] == reduced) order.push_back(d);
  }
  w.StorageLayout(shared, order, 0, kLine);
  w.Fetch(shared, t.threads, is_line ? factor.vector : 1);

  const std::vector<Expr> operands = OperandsOf(Stage(w, sum)).list;
  const auto number = std::find_if(operands.begin(), operands.end(), [&](const Expr& e) {
    return e->op == Op::kLoad && e->buffer == shared.tensor;
  });
  const StageRef fragment = w.GatherRead(sum, number - operands.begin());
  const ScheduledStage& here = Stage(w, sum);
  const size_t data = here.axes.size() - reduced;  // behind the parts'
  w.SetScope(fragment, Scope::kLocal);
  w.Fragment(fragment, kInstruction, i == t.a ? MatrixOperand::kA : MatrixOperand::kB,
             here.axes[data + factor.own]->name, here.reduce_axes[0]->name);
  w.ComputeAt(fragment, step);
}

void MatrixPlan::Write(ScheduleWriter& w, HoleValues values) const {
  const Tile t(kernel_, values);
  const TiledKernel& k = kernel_.kernel;
  const Factor &rows = kernel_.factors[t.a], &cols = kernel_.factors[1 - t.a];
  const MatrixShape& shape = ShapeOf(kInstruction);
  StageRef root = k.root, sum = k.reduction;
  const std::vector<StageRef> shared = WriteGathers(w);
  LoopList blocks;
  if (t[kParts] > 1) {
    sum = w.Rfactor(w.Split(w.ReduceLoops(k.reduction)[0], t.PartLength())[0]);
    const std::vector<StageRef> partials = w.Materialize(sum, k.reduction);
    root = partials[0];
    blocks = {w.Loops(root)[0]};
    WriteCombineKernel(w, {k.root, k.reduction, partials, t[kParts]}, k.target);
  }
  // The result: blocks, warps and lanes, and what each lane holds.
  const LoopList axes = w.Loops(root);
  const size_t data = axes.size() - k.axes.size();
  LoopList row, col;
  for (size_t x = 0; x < k.axes.size(); ++x) {
    const LoopRef& axis = axes[data + x];
    if (x == rows.own) {
      row = w.Split(axis, {t[kRowWarps], t[kRowTiles], 2, 8});
      blocks.push_back(row[0]);
    } else if (x == cols.own) {
      col = w.Split(axis, {t[kColWarps], t[kColTiles], 4, 2});
      blocks.push_back(col[0]);
    } else {
      blocks.push_back(axis);
    }
  }
  const LoopList threads = {row[1], col[1], row[4], col[3]};
  w.Reorder(Join({blocks, threads, {row[2], row[3], col[2], col[4]}}));
  w.Bind(w.Fuse(blocks), BindTo::kBlock);
  if (t[kRaster] > 1) w.BlockSwizzle(root, t[kRaster]);
  const LoopRef thread = w.Fuse(threads);
  w.Bind(thread, BindTo::kThread);
  w.Vectorize(col[4]);
  if (t[kBlocks] > 0) w.LaunchBounds(root, t[kBlocks]);

  // The sums: tiles, steps, and the matrices of a step.
  w.SetScope(sum, Scope::kLocal);
  const std::vector<Var> sum_axes = Stage(w, sum).axes;
  w.Fragment(sum, kInstruction, MatrixOperand::kD, sum_axes[data + rows.own]->name,
             sum_axes[data + cols.own]->name);
  w.ComputeAt(sum, thread);
  LoopList loops = w.DataLoops(sum);
  const auto [tiles, step, k16] = w.Split(w.ReduceLoops(sum)[0], t[kSteps], shape.k);
  const auto [row_tiles, m16] = w.Split(loops[data + rows.own], shape.m);
  const auto [col_tiles, n8] = w.Split(loops[data + cols.own], shape.n);
  loops[data + rows.own] = row_tiles;
  loops[data + cols.own] = col_tiles;
  w.Reorder(Join({{tiles, step}, loops, {m16, n8, k16}}));
  w.Tensorize(sum, m16, n8, k16);
  if (t[kAhead] == 0) w.Unroll(step);
  for (size_t i = 0; i < 2; ++i) WriteOperand(w, t, i, shared[i], sum, tiles, step);
  if (t[kPipeline] != 0) {
    w.Pipeline(tiles, t[kPipeline] == 1 ? PipelineKind::kRegisters : PipelineKind::kAsyncCopy,
               t.buffers);
  }
  if (t[kAhead] != 0) w.Pipeline(step, PipelineKind::kRegisters, 2);
}

class MatrixRule : public SketchRule {
 public:
  const char* name() const override { return "matrix"; }
  bool Applies(const ProgramShape& shape, const KernelShape& kernel,
               const Target& target) const override {
    return MatrixKernel::Find(shape, kernel, target).has_value();
  }
  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    return std::make_unique<MatrixPlan>(*MatrixKernel::Find(shape, kernel, target));
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeMatrixRule() { return std::make_unique<MatrixRule>(); }

}  // namespace heddle::search_space
