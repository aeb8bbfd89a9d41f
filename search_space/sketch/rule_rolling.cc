// Chains of two products of 16-bit matrices, such as attention, by instructions of warps: the first
// product, the scores, is made some columns at a time, and what the statistics of its rows are so
// far is taken along (rolling_update), so that no row of it is ever whole anywhere.
//
// A warp has rows of the result to itself. Its lanes hold, as the instruction lays it out, the
// scores of an iteration, turn them into weights where they lie, and multiply these with rows of
// the other operand: nothing of it goes through shared memory, where only tiles of the inputs are.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/stmt.h"
#include "search_space/sketch/rolling_chain.h"
#include "search_space/sketch/rules.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kOtherRegisters = 48;  // addresses, loop counters, statistics, temporaries
constexpr MatrixInstruction kInstruction = MatrixInstruction::kM16N8K16;

class RollingPlan : public KernelPlan {
 public:
  explicit RollingPlan(RollingChain chain) : chain_(std::move(chain)) {
    const auto add = [&](const char* name, std::vector<int64_t> domain, int group) {
      holes_.push_back({name, std::move(domain), group});
    };
    // The first value of each takes least.
    add("warps", {4, 1, 2, 8}, 0);
    add("tiles", {1, 2, 3, 4}, 0);
    add("terms", TermsOfIteration(), 0);
    add("held", {0, 1}, 1);
    const bool copies = chain_.keys().is_copied && chain_.values().is_copied;
    add("pipeline", copies ? std::vector<int64_t>{0, 2, 3, 4} : std::vector<int64_t>{0}, 1);
    add("min_blocks", {0, 1, 2, 3, 4}, 2);
    add("skip_masked", chain_.is_masked ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}, 3);
    add("last_first", chain_.is_masked ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}, 3);
  }

  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }
  absl::Status Check(HoleValues v) const override;
  double Waste(HoleValues v) const override {
    const int64_t rows = Kernel().axes[chain_.root.factors[chain_.weights_number].own].extent;
    return static_cast<double>(RoundUp(rows, Rows(v))) / static_cast<double>(rows);
  }
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override;

 protected:
  void Write(ScheduleWriter& w, HoleValues values) const override;

 private:
  enum HoleNumber : uint8_t {
    kWarps,     // of a block, along the rows
    kTiles,     // of 16 rows, of a warp
    kTerms,     // columns of the scores that an iteration makes
    kHeld,      // 1: a warp's rows of the scores' first factor stay in registers
    kPipeline,  // 0: none, more: copies, in so many buffers
    kBlocks,
    kMasked,
    kReversed
  };

  // The root's operands, by the axes that they bring to the result.
  const TiledKernel& Kernel() const { return chain_.root.kernel; }
  size_t RowAxis() const { return chain_.root.factors[chain_.weights_number].own; }
  size_t ColumnAxis() const { return chain_.values().own; }
  int64_t Columns() const { return Kernel().axes[ColumnAxis()].extent; }
  int64_t Terms() const { return chain_.root.Depth(); }
  static int64_t Rows(HoleValues v) { return 16 * v[kTiles] * v[kWarps]; }
  static int64_t Threads(HoleValues v) { return kWarpThreads * v[kWarps]; }

  // Whole matrices of equal parts of all terms; at least one that no plan has where there are none.
  std::vector<int64_t> TermsOfIteration() const {
    std::vector<int64_t> terms;
    for (int64_t t : {64, 32, 16, 128, 48, 96, 80, 112}) {
      if (Terms() % t == 0) terms.push_back(t);
    }
    if (terms.empty()) terms.push_back(16);
    return terms;
  }
  // What lies in registers at once.
  int64_t Registers(HoleValues v) const;
  int64_t SharedBytes(HoleValues v) const;
  int64_t Blocks(HoleValues v) const;

  struct Root {
    LoopRef thread;      // of the result
    LoopRef iterations;  // of the sum, over parts of its terms
    LoopRef read;        // where it reads what it multiplies the weights with
  };
  Root WriteRoot(ScheduleWriter& w, HoleValues v) const;
  void WriteScores(ScheduleWriter& w, HoleValues v, const Root& root, const StageRef& queries,
                   const StageRef& keys) const;
  // Matrices of a sum in the order in which they are multiplied, `k16` along the reduction. The
  // loop at which two columns of those of B are read, since four blocks of these are read at once.
  // Loops over `parts` of A are inside of that.
  static LoopRef TileProduct(ScheduleWriter& w, const StageRef& sum, LoopList loops, size_t row,
                             size_t col, const LoopList& outer, const LoopList& parts,
                             const LoopRef& k16);
  void WriteWeights(ScheduleWriter& w, const Root& root) const;
  void WriteStatistic(ScheduleWriter& w, size_t number, const Root& root) const;
  static const ScheduledStage& Stage(const ScheduleWriter& w, const StageRef& stage) {
    const Schedule& schedule = w.schedule();
    return schedule.stages()[static_cast<size_t>(schedule.FindStage(stage.tensor.get()))];
  }

  const RollingChain chain_;
};

int64_t RollingPlan::Registers(HoleValues v) const {
  const int64_t columns = CeilDiv(Columns(), 8), depth = CeilDiv(chain_.scores.Depth(), 16);
  const int64_t sums = v[kTiles] * columns * 4, scores = v[kTiles] * v[kTerms] / 8 * 4;
  const int64_t weights = v[kTiles] * v[kTerms] / 16 * 4;
  // Half of the parts are there before the scores are not.
  const int64_t beside = chain_.has_parts ? weights : 0;
  const int64_t queries = v[kTiles] * (v[kHeld] != 0 ? depth : 1) * 4;
  // Of the other operands, two matrices and those that are read ahead.
  static constexpr int64_t kRead = 16;
  return kOtherRegisters + sums + kRead + queries + std::max(scores, weights) + beside;
}

int64_t RollingPlan::SharedBytes(HoleValues v) const {
  const int64_t depth = RoundUp(chain_.scores.Depth(), 16), columns = RoundUp(Columns(), 8);
  const int64_t buffers = std::max<int64_t>(1, v[kPipeline]);
  const int64_t size = SizeOf(chain_.root.Type());
  const auto bytes = [&](int64_t elements) { return RoundUp(elements * size, 128); };
  return bytes(Rows(v) * depth) + buffers * (bytes(v[kTerms] * depth) + bytes(v[kTerms] * columns));
}

int64_t RollingPlan::Blocks(HoleValues v) const {
  int64_t blocks = 1;
  for (size_t a = 0; a < Kernel().axes.size(); ++a) {
    if (a == ColumnAxis()) continue;
    const int64_t extent = Kernel().axes[a].extent;
    blocks *= a == RowAxis() ? CeilDiv(extent, Rows(v)) : extent;
  }
  return blocks;
}

absl::Status RollingPlan::Check(HoleValues v) const {
  const TiledKernel& k = Kernel();
  if (Terms() % v[kTerms] != 0) {
    return k.Refuse(absl::StrCat(Terms(), " terms are no whole parts of ", v[kTerms]));
  }
  const int64_t rows = k.axes[RowAxis()].extent;
  if (Rows(v) > 16 && Rows(v) >= 2 * rows) return k.TooMany(Rows(v), "rows of a block", 2 * rows);
  const int64_t threads = Threads(v), blocks = std::max<int64_t>(1, v[kBlocks]);
  const int64_t shared = SharedBytes(v);
  if (shared > k.target.max_shared_bytes_per_block) {
    return k.TooMany(shared, "shared bytes", k.target.max_shared_bytes_per_block);
  }
  if (shared * blocks > k.target.shared_bytes_per_sm) {
    return k.TooMany(blocks, "blocks a multiprocessor", k.target.shared_bytes_per_sm / shared);
  }
  const int64_t registers =
      std::min(k.target.max_registers_per_thread, k.target.registers_per_sm / (threads * blocks));
  if (Registers(v) > registers) return k.TooMany(Registers(v), "registers", registers);
  if (Blocks(v) > k.target.max_grid) return k.TooMany(Blocks(v), "blocks", k.target.max_grid);
  if (v[kPipeline] > Terms() / v[kTerms] + 1) {
    return k.TooMany(v[kPipeline], "buffers", Terms() / v[kTerms] + 1);
  }
  if (v[kReversed] != 0 && v[kMasked] == 0) {
    return k.Refuse("blocks that leave nothing out have all the same to do");
  }
  return absl::OkStatus();
}

// Few draws come from anywhere; the others have copies under way, tiles that fill the registers,
// and leave out what masks do.
void RollingPlan::Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  static constexpr int kAttempts = 16;
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  const bool anywhere = below(8) == 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    KernelPlan::Draw(rng, values);
    if (!anywhere) {
      if (holes_[kPipeline].domain.size() > 1 && values[kPipeline] == 0) values[kPipeline] = 2;
      if (chain_.is_masked && below(8) != 0) values[kMasked] = 1;
      if (values[kMasked] == 0) values[kReversed] = 0;
      if (values[kWarps] < 4 && below(4) != 0) values[kWarps] = 4;
    }
    if (Check(values).ok()) return;
  }
}

RollingPlan::Root RollingPlan::WriteRoot(ScheduleWriter& w, HoleValues v) const {
  const StageRef root = Kernel().root, sum = Kernel().reduction;
  // Blocks, warps and lanes, and what each lane holds. Of a mask, blocks that run together have as
  // much to do as one another.
  const LoopList axes = w.Loops(root);
  LoopList blocks, row, col;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (a == RowAxis()) {
      row = w.Split(axes[a], {v[kWarps], v[kTiles], 2, 8});
      if (v[kReversed] != 0) w.Reverse(row[0]);
      blocks.insert(v[kMasked] != 0 ? blocks.begin() : blocks.end(), row[0]);
    } else if (a == ColumnAxis()) {
      col = w.Split(axes[a], {CeilDiv(Columns(), 8), 4, 2});
      blocks.push_back(col[0]);  // one
    } else {
      blocks.push_back(axes[a]);
    }
  }
  w.Reorder(Join({blocks, {row[1], row[4], col[2], row[2], row[3], col[1], col[3]}}));
  w.Bind(w.Fuse(blocks), BindTo::kBlock);
  if (v[kBlocks] > 0) w.LaunchBounds(root, v[kBlocks]);
  const LoopRef thread = w.Fuse({row[1], row[4], col[2]});
  w.Bind(thread, BindTo::kThread);
  w.Vectorize(col[3]);

  w.SetScope(sum, Scope::kLocal);
  const std::vector<Var> names = Stage(w, sum).axes;
  w.Fragment(sum, kInstruction, MatrixOperand::kD, names[RowAxis()]->name,
             names[ColumnAxis()]->name);
  w.ComputeAt(sum, thread);
  LoopList loops = w.DataLoops(sum);
  LoopList parts = w.ReduceLoops(sum);
  const LoopRef terms = parts[chain_.root.depth];
  parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(chain_.root.depth));
  const auto [iterations, step, k16] = w.Split(terms, v[kTerms] / 16, 16);
  const LoopRef read =
      TileProduct(w, sum, loops, RowAxis(), ColumnAxis(), {iterations, step}, parts, k16);
  w.Unroll(step);
  return {thread, iterations, read};
}

LoopRef RollingPlan::TileProduct(ScheduleWriter& w, const StageRef& sum, LoopList loops, size_t row,
                                 size_t col, const LoopList& outer, const LoopList& parts,
                                 const LoopRef& k16) {
  const auto [row_tiles, m16] = w.Split(loops[row], 16);
  const auto tiles = Stage(w, sum).extent[col] / 8;
  const auto [pairs, col_tiles, n8] = w.Split(loops[col], tiles % 2 == 0 ? 2 : 1, 8);
  loops[row] = row_tiles;
  loops[col] = col_tiles;
  w.Reorder(Join({outer, {pairs}, parts, loops, {m16, n8, k16}}));
  w.Tensorize(sum, m16, n8, k16);
  w.Unroll(pairs);
  for (const LoopRef& part : parts) w.Unroll(part);
  return pairs;
}

void RollingPlan::WriteScores(ScheduleWriter& w, HoleValues v, const Root& root,
                              const StageRef& queries, const StageRef& keys) const {
  const MatrixKernel& product = chain_.scores;
  const StageRef sum = product.kernel.reduction;
  w.SetScope(sum, Scope::kLocal);
  const std::vector<Var> names = Stage(w, sum).axes;
  const size_t row = chain_.queries().own, col = chain_.keys().own;
  w.Fragment(sum, kInstruction, MatrixOperand::kD, names[row]->name, names[col]->name);
  w.ComputeAt(sum, root.iterations);
  LoopList loops = w.DataLoops(sum);
  const auto [step, k16] = w.Split(w.ReduceLoops(sum)[product.depth], 16);
  const LoopRef read = TileProduct(w, sum, loops, row, col, {step}, {}, k16);
  w.Unroll(step);
  chain_.keys().WriteTile(w, keys, Threads(v), root.iterations);
  WriteFragment(w, sum, keys, col, product.depth, kInstruction, MatrixOperand::kB, read);
  chain_.queries().WriteTile(w, queries, Threads(v), root.thread);
  WriteFragment(w, sum, queries, row, product.depth, kInstruction, MatrixOperand::kA,
                v[kHeld] != 0 ? root.thread : step);
}

void RollingPlan::WriteWeights(ScheduleWriter& w, const Root& root) const {
  const StageRef& weights = chain_.weights;
  const std::vector<Var> axes = Stage(w, weights).axes;
  w.SetScope(weights, Scope::kLocal);
  w.Fragment(weights, kInstruction, MatrixOperand::kA, axes[chain_.weights_row]->name,
             axes[chain_.weights_term]->name);
  w.ComputeAt(weights, root.iterations);
}

void RollingPlan::WriteStatistic(ScheduleWriter& w, size_t number, const Root& root) const {
  const StageRef& statistic = chain_.statistics[number];
  w.SetScope(statistic, Scope::kLocal);
  w.RowFragment(statistic, kInstruction,
                Stage(w, statistic).axes[chain_.statistic_rows[number]]->name);
  w.RollingUpdate(statistic, root.iterations);
}

void RollingPlan::Write(ScheduleWriter& w, HoleValues v) const {
  for (const BufferRef& stage : chain_.inlined) w.ComputeInline({stage});
  const StageRef sum = Kernel().reduction, scores = chain_.scores.kernel.reduction;
  if (v[kMasked] != 0) w.SkipMasked(sum);
  const auto tile_of = [&](const StageRef& of, const Factor& factor) {
    return w.GatherRead(of, static_cast<int64_t>(factor.operand.number));
  };
  const StageRef values = tile_of(sum, chain_.values());
  const StageRef queries = tile_of(scores, chain_.queries()), keys = tile_of(scores, chain_.keys());

  const Root root = WriteRoot(w, v);
  chain_.values().WriteTile(w, values, Threads(v), root.iterations);
  WriteFragment(w, sum, values, ColumnAxis(), chain_.root.depth, kInstruction, MatrixOperand::kB,
                root.read);
  // Who reads a stage is in its place before it.
  const auto index_of = [&](const StageRef& s) { return w.schedule().FindStage(s.tensor.get()); };
  const int weights_at = index_of(chain_.weights);
  const auto write_statistics = [&](bool behind_weights) {
    for (size_t s = chain_.statistics.size(); s-- > 0;) {
      const StageRef& statistic = chain_.statistics[s];
      if ((index_of(statistic) > weights_at) == behind_weights) WriteStatistic(w, s, root);
    }
  };
  write_statistics(true);
  WriteWeights(w, root);
  write_statistics(false);
  WriteScores(w, v, root, queries, keys);
  if (v[kPipeline] != 0) w.Pipeline(root.iterations, PipelineKind::kAsyncCopy, v[kPipeline]);
}

class RollingRule : public SketchRule {
 public:
  const char* name() const override { return "rolling"; }
  bool takes_fused_kernels() const override { return true; }
  bool multiplies_matrices() const override { return true; }
  bool Applies(const ProgramShape& shape, const KernelShape& kernel,
               const Target& target) const override {
    return PlanFor(shape, kernel, target) != nullptr;
  }
  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    return PlanFor(shape, kernel, target);
  }

 private:
  // Whether the statistics can be taken along is found out by writing the simplest schedule.
  static std::unique_ptr<KernelPlan> PlanFor(const ProgramShape& shape, const KernelShape& kernel,
                                             const Target& target) {
    auto chain = FindRollingChain(shape, kernel, target);
    if (!chain.has_value()) return nullptr;
    auto plan = std::make_unique<RollingPlan>(*std::move(chain));
    std::vector<int64_t> values;
    for (const Hole& hole : plan->holes()) values.push_back(hole.domain[0]);
    ScheduleWriter w(shape.schedule);
    if (!plan->WriteTo(w, values).ok()) return nullptr;
    return plan;
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeRollingRule() { return std::make_unique<RollingRule>(); }

}  // namespace heddle::search_space
