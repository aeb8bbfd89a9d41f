// Chains of products of 16-bit matrices, such as attention, by instructions of warps
// (rolling_plan.h): a warp has rows of the result to itself.
#include <algorithm>
#include <utility>

#include "search_space/sketch/rules/rolling_plan.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

constexpr MatrixInstruction kInstruction = MatrixInstruction::kM16N8K16;

class WarpRollingPlan : public RollingPlan {
 public:
  static constexpr bool kInWarpgroups = false;

  explicit WarpRollingPlan(RollingChain chain) : RollingPlan(std::move(chain)) {}

 protected:
  RollingTile TileOf(HoleValues v) const override;
  void Improve(std::mt19937_64& rng, std::vector<int64_t>& values) const override;
  LoopRef WriteRootProduct(ScheduleWriter& w, const RollingTile& t, const LoopList& outer,
                           const LoopList& parts, const LoopRef& k) const override;
  void WriteValues(ScheduleWriter& w, const RollingTile& t, const Root& root,
                   const StageRef& values) const override;
  void ReadValues(ScheduleWriter& w, const StageRef& values, const LoopRef& at) const override;
  void WriteScores(ScheduleWriter& w, const RollingTile& t, const Root& root,
                   const ScoreProduct& scores, const StageRef& queries,
                   const StageRef& keys) const override;

 private:
  // Addresses, loop counters, statistics, temporaries.
  static constexpr int64_t kOtherRegisters = 48;

  // Whole matrices of equal parts of all terms; at least one that no plan has where there are none.
  std::vector<int64_t> TermsOfIteration() const {
    std::vector<int64_t> terms;
    for (int64_t t : {64, 32, 16, 128, 48, 96, 80, 112}) {
      if (Terms() % t == 0) terms.push_back(t);
    }
    if (terms.empty()) terms.push_back(16);
    return terms;
  }
  std::vector<int64_t> Pipelines() const {
    const bool are_copied =
        std::all_of(chain_.scores.begin(), chain_.scores.end(),
                    [](const ScoreProduct& scores) { return scores.keys().is_copied; });
    if (!are_copied || !chain_.values().is_copied) return {0};
    return {0, 2, 3, 4};
  }
  int64_t Registers(HoleValues v) const;
  int64_t SharedBytes(const RollingTile& t) const;
  // Matrices of a sum in the order in which they are multiplied, `k16` along the reduction. The
  // loop at which two columns of those of B are read, since four blocks of these are read at once.
  // Loops over `parts` of A are inside of that.
  static LoopRef TileProduct(ScheduleWriter& w, const StageRef& sum, size_t row, size_t col,
                             const LoopList& outer, const LoopList& parts, const LoopRef& k16);

  // The first value of each takes least.
  const HoleId warps_ = AddHole("warps", {4, 1, 2, 8}, 0);  // of a block, along the rows
  const HoleId tiles_ = AddHole("tiles", {1, 2, 3, 4}, 0);  // of 16 rows, of a warp
  // Columns of the scores that an iteration makes.
  const HoleId terms_ = AddHole("terms", TermsOfIteration(), 0);
  // 1: a warp's rows of the scores' first factor stay in registers.
  const HoleId held_ = AddHole("held", {0, 1}, 1);
  // 0: none, more: copies, in so many buffers.
  const HoleId pipeline_ = AddHole("pipeline", Pipelines(), 1);
  const HoleId blocks_ = AddHole("min_blocks", {0, 1, 2, 3, 4}, 2);
  const HoleId masked_ = AddHole("skip_masked", OnlyIf(chain_.is_masked), 3);
  const HoleId reversed_ = AddHole("last_first", OnlyIf(chain_.is_masked), 3);
  // 1: what weights are made of besides scores is read before these are there.
  const HoleId ahead_ = AddHole("read_ahead", OnlyIf(!chain_.beside.empty()), 1);
};

// What lies in registers at once.
int64_t WarpRollingPlan::Registers(HoleValues v) const {
  const int64_t columns = CeilDiv(Columns(), 8);
  const int64_t sums = v[tiles_] * columns * 4, scores = v[tiles_] * v[terms_] / 8 * 4;
  const int64_t weights = v[tiles_] * v[terms_] / 16 * 4;
  // Half of the parts are there before the scores are not.
  const int64_t beside = chain_.has_parts ? weights : 0;
  const int64_t read = v[ahead_] != 0 ? scores * std::ssize(chain_.beside) : 0;
  int64_t matrices = 0;
  for (const ScoreProduct& s : chain_.scores) {
    matrices += v[held_] != 0 ? CeilDiv(s.product.Depth(), 16) : 1;
  }
  const int64_t queries = v[tiles_] * matrices * 4;
  // One of several scores at least is there until weights are.
  const int64_t others = scores * (std::ssize(chain_.scores) - 1);
  // Of the other operands, two matrices and those that are read ahead.
  static constexpr int64_t kRead = 16;
  return kOtherRegisters + sums + kRead + queries + std::max(scores, weights) + others + beside +
         read;
}

int64_t WarpRollingPlan::SharedBytes(const RollingTile& t) const {
  const int64_t columns = RoundUp(Columns(), 8), buffers = std::max<int64_t>(1, t.buffers);
  const int64_t size = SizeOf(chain_.root.Type());
  const auto bytes = [&](int64_t elements) { return RoundUp(elements * size, 128); };
  int64_t all = buffers * bytes(t.terms * columns);
  for (size_t s = 0; s < chain_.scores.size(); ++s) {
    const int64_t depth = RoundUp(chain_.scores[s].product.Depth(), 16);
    all += bytes(t.rows() * depth);
    if (s != t.shared_keys) all += buffers * bytes(t.terms * depth);
  }
  return all;
}

RollingTile WarpRollingPlan::TileOf(HoleValues v) const {
  RollingTile t{.root = kInstruction,
                .scores = kInstruction,
                .groups = v[warps_],
                .tiles = v[tiles_],
                .terms = v[terms_],
                .buffers = v[pipeline_],
                .min_blocks = v[blocks_],
                .skips_masked = v[masked_] != 0,
                .reversed = v[reversed_] != 0,
                .reads_ahead = v[ahead_] != 0,
                .holds_queries = v[held_] != 0,
                .shared_keys = chain_.keys_are_values};
  t.registers = Registers(v);
  t.shared_bytes = SharedBytes(t);
  return t;
}

// Fast kernels have copies under way, tiles that fill the registers, and leave out what masks do.
void WarpRollingPlan::Improve(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  if (holes_[pipeline_].domain.size() > 1 && values[pipeline_] == 0) values[pipeline_] = 2;
  DrawMask(rng, values[masked_], values[reversed_]);
  if (!chain_.beside.empty() && below(4) != 0) values[ahead_] = 1;
  if (values[warps_] < 4 && below(4) != 0) values[warps_] = 4;
}

LoopRef WarpRollingPlan::TileProduct(ScheduleWriter& w, const StageRef& sum, size_t row, size_t col,
                                     const LoopList& outer, const LoopList& parts,
                                     const LoopRef& k16) {
  LoopList loops = w.DataLoops(sum);
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

LoopRef WarpRollingPlan::WriteRootProduct(ScheduleWriter& w, const RollingTile& /*t*/,
                                          const LoopList& outer, const LoopList& parts,
                                          const LoopRef& k) const {
  const LoopRef read = TileProduct(w, Kernel().reduction, RowAxis(), ColumnAxis(), outer, parts, k);
  w.Unroll(outer.back());
  return read;
}

void WarpRollingPlan::WriteValues(ScheduleWriter& w, const RollingTile& t, const Root& root,
                                  const StageRef& values) const {
  chain_.values().WriteTile(w, values, t.threads(), root.iterations);
}

void WarpRollingPlan::ReadValues(ScheduleWriter& w, const StageRef& values,
                                 const LoopRef& at) const {
  WriteFragment(w, Kernel().reduction, values, ColumnAxis(), chain_.root.depth, kInstruction,
                MatrixOperand::kB, at);
}

void WarpRollingPlan::WriteScores(ScheduleWriter& w, const RollingTile& t, const Root& root,
                                  const ScoreProduct& scores, const StageRef& queries,
                                  const StageRef& keys) const {
  const MatrixKernel& product = scores.product;
  const StageRef& sum = scores.sum();
  const size_t row = scores.queries().own, col = scores.keys().own;
  const auto [step, k16] = w.Split(w.ReduceLoops(sum)[product.depth], 16);
  const LoopRef read = TileProduct(w, sum, row, col, {step}, {}, k16);
  w.Unroll(step);
  scores.keys().WriteTile(w, keys, t.threads(), root.iterations);
  WriteFragment(w, sum, keys, col, product.depth, kInstruction, MatrixOperand::kB, read);
  scores.queries().WriteTile(w, queries, t.threads(), root.thread);
  WriteFragment(w, sum, queries, row, product.depth, kInstruction, MatrixOperand::kA,
                t.holds_queries ? root.thread : step);
}

}  // namespace

const SketchRule kRollingRule = RollingRule<WarpRollingPlan>("rolling");

}  // namespace heddle::search_space
