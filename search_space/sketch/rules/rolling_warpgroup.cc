// Chains of products of 16-bit matrices, such as attention, by instructions of warpgroups
// (rolling_plan.h): these read tiles in shared memory themselves, but for the weights, which the
// lanes hold as the second product takes them. While one warpgroup makes weights of its scores,
// products of others go on.
#include <algorithm>
#include <utility>

#include "search_space/ir/background.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/sketch/rules/rolling_plan.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kRegistersOfMask = 4;  // of each row that a lane holds of

class WarpgroupRollingPlan : public RollingPlan {
 public:
  static constexpr bool kInWarpgroups = true;

  explicit WarpgroupRollingPlan(RollingChain chain) : RollingPlan(std::move(chain)) {}

 protected:
  RollingTile TileOf(HoleValues v) const override;
  void Improve(std::mt19937_64& rng, std::vector<int64_t>& values) const override;
  LoopRef WriteRootProduct(ScheduleWriter& w, const RollingTile& t, const LoopList& outer,
                           const LoopList& parts, const LoopRef& k) const override;
  void WriteValues(ScheduleWriter& w, const RollingTile& t, const Root& root,
                   const StageRef& values) const override;
  void WriteScores(ScheduleWriter& w, const RollingTile& t, const Root& root,
                   const ScoreProduct& scores, const StageRef& queries,
                   const StageRef& keys) const override;

 private:
  // Addresses, loop counters, statistics, temporaries.
  static constexpr int64_t kOtherRegisters = 36;

  // Elements of a line of a factor's tiles, of so many elements of its own axis and of the
  // reduction's that an instruction reads; 0: there are no such lines.
  static int64_t LineOf(const MatrixKernel& product, size_t factor, int64_t own, int64_t depth) {
    return SharedMatrix::LongestSpanOf(product.IsAlongOwn(factor) ? own : depth, product.Type());
  }
  int64_t LineOfValues(const RollingTile& t) const {
    return LineOf(chain_.root, 1 - chain_.weights_number, ShapeOf(t.root).n, t.terms);
  }
  static int64_t LineOfKeys(const RollingTile& t, const ScoreProduct& s) {
    return LineOf(s.product, 1 - s.queries_number, ShapeOf(t.scores).n, s.product.Depth());
  }
  // The widest instruction that divides the columns of the result.
  std::optional<MatrixInstruction> RootInstruction() const;
  // Columns of an instruction that are equal parts of all terms; none without one for the root.
  std::vector<int64_t> TermsOfIteration() const;
  bool AreCopied() const {
    const auto is_copied = [](const ScoreProduct& s) { return s.keys().is_copied; };
    return chain_.values().is_copied &&
           std::all_of(chain_.scores.begin(), chain_.scores.end(), is_copied);
  }
  bool AreBoxed() const {
    const auto is_boxed = [](const ScoreProduct& s) { return s.keys().is_boxed; };
    return chain_.values().is_boxed &&
           std::all_of(chain_.scores.begin(), chain_.scores.end(), is_boxed);
  }
  std::vector<int64_t> Pipelines() const {
    if (!AreCopied() && !AreBoxed()) return {0};
    return {2, 3, 4};
  }
  std::vector<int64_t> BulkCopies() const {
    std::vector<int64_t> bulk;
    if (AreCopied() || !AreBoxed()) bulk.push_back(0);
    if (AreBoxed()) bulk.push_back(1);
    return bulk;
  }
  static MatrixInstruction Instruction(int64_t columns, DType type);
  static void TileProduct(ScheduleWriter& w, const StageRef& sum, MatrixInstruction instruction,
                          size_t row, size_t col, const LoopList& outer, const LoopList& parts,
                          const LoopRef& k);

  // nullopt: the plan has no values.
  const std::optional<MatrixInstruction> root_ = RootInstruction();
  // The first value of each takes least.
  const HoleId groups_ = AddHole("groups", {1, 2, 3, 4}, 0);  // of a block, along the rows
  const HoleId tiles_ = AddHole("tiles", {1, 2}, 0);          // of 64 rows, of a warpgroup
  // Columns of the scores that an iteration makes.
  const HoleId terms_ = AddHole("terms", TermsOfIteration(), 0);
  // 0: none, more: copies, in so many buffers.
  const HoleId pipeline_ = AddHole("pipeline", Pipelines(), 1);
  // 1: copies are boxes of the tensors.
  const HoleId bulk_ = AddHole("bulk", BulkCopies(), 1);
  const HoleId blocks_ = AddHole("min_blocks", {0, 1, 2, 3, 4}, 2);
  const HoleId masked_ = AddHole("skip_masked", OnlyIf(chain_.is_masked), 3);
  const HoleId reversed_ = AddHole("last_first", OnlyIf(chain_.is_masked), 3);
  // 1: what weights are made of besides scores is read before these are there.
  const HoleId ahead_ = AddHole("read_ahead", OnlyIf(!chain_.beside.empty()), 1);
};

MatrixInstruction WarpgroupRollingPlan::Instruction(int64_t columns, DType type) {
  const auto all = WarpgroupInstructions(type);
  return *std::find_if(all.begin(), all.end(),
                       [&](MatrixInstruction i) { return ShapeOf(i).n == columns; });
}

std::optional<MatrixInstruction> WarpgroupRollingPlan::RootInstruction() const {
  std::optional<MatrixInstruction> widest;
  for (MatrixInstruction i : WarpgroupInstructions(chain_.root.Type())) {
    if (Columns() % ShapeOf(i).n == 0) widest = i;
  }
  return widest;
}

std::vector<int64_t> WarpgroupRollingPlan::TermsOfIteration() const {
  if (!root_.has_value()) return {};
  const int64_t columns = ShapeOf(*root_).n;
  std::vector<int64_t> terms;
  for (int64_t t : {64, 32, 128, 96, 160, 192, 224, 256}) {
    bool has_lines = LineOf(chain_.root, 1 - chain_.weights_number, columns, t) > 0;
    for (const ScoreProduct& s : chain_.scores) {
      const int64_t depth = s.product.Depth();
      has_lines = has_lines && LineOf(s.product, s.queries_number, 64, depth) > 0 &&
                  LineOf(s.product, 1 - s.queries_number, t, depth) > 0;
    }
    if (Terms() % t == 0 && has_lines) terms.push_back(t);
  }
  return terms;
}

RollingTile WarpgroupRollingPlan::TileOf(HoleValues v) const {
  RollingTile t{.root = *root_,
                .scores = Instruction(v[terms_], chain_.scores[0].product.Type()),
                .groups = v[groups_],
                .tiles = v[tiles_],
                .terms = v[terms_],
                .kind = v[bulk_] != 0 ? PipelineKind::kBulkCopy : PipelineKind::kAsyncCopy,
                .buffers = v[pipeline_],
                .min_blocks = v[blocks_],
                .skips_masked = v[masked_] != 0,
                .reversed = v[reversed_] != 0,
                .reads_ahead = v[ahead_] != 0};
  // Instructions find a tile's elements by its lines.
  const auto shared = chain_.keys_are_values;
  if (shared && LineOfKeys(t, chain_.scores[*shared]) == LineOfValues(t)) t.shared_keys = shared;
  // Of the result and of scores, the place of the first of which the weights take, but one of two
  // parts of these.
  const int64_t lane = t.tiles * t.layout().row_blocks();
  t.registers = kOtherRegisters + lane * (Columns() + std::ssize(chain_.scores) * t.terms) / 4 +
                (chain_.has_parts ? lane * t.terms / 8 : 0) +
                (chain_.is_masked ? lane * kRegistersOfMask : 0) +
                (t.reads_ahead ? lane * t.terms / 4 * std::ssize(chain_.beside) : 0);
  // Tiles begin where squares of the longest lines do.
  const int64_t align = SharedMatrix::kSquareRows * SharedMatrix::kLongestSpan;
  const int64_t buffers = std::max<int64_t>(1, t.buffers);
  const auto bytes = [&](int64_t elements) {
    return RoundUp(elements * SizeOf(chain_.root.Type()), align);
  };
  t.shared_bytes = align + buffers * bytes(t.terms * Columns());
  for (size_t s = 0; s < chain_.scores.size(); ++s) {
    const int64_t depth = chain_.scores[s].product.Depth();
    t.shared_bytes += bytes(t.rows() * depth);
    if (s != t.shared_keys) t.shared_bytes += buffers * bytes(t.terms * depth);
  }
  return t;
}

// Fast kernels have several warpgroups a multiprocessor, and leave out what masks do.
void WarpgroupRollingPlan::Improve(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  DrawMask(rng, values[masked_], values[reversed_]);
  if (!chain_.beside.empty() && below(4) != 0) values[ahead_] = 1;
  if (values[groups_] == 1 && below(4) != 0) values[groups_] = 2;
  if (values[terms_] < 64 && below(4) != 0) values[terms_] = holes_[terms_].domain[0];
}

void WarpgroupRollingPlan::TileProduct(ScheduleWriter& w, const StageRef& sum,
                                       MatrixInstruction instruction, size_t row, size_t col,
                                       const LoopList& outer, const LoopList& parts,
                                       const LoopRef& k) {
  const MatrixShape& shape = ShapeOf(instruction);
  LoopList loops = w.DataLoops(sum);
  const auto [row_tiles, m] = w.Split(loops[row], shape.m);
  const auto [col_tiles, n] = w.Split(loops[col], shape.n);
  loops[row] = row_tiles;
  loops[col] = col_tiles;
  w.Reorder(Join({outer, parts, loops, {m, n, k}}));
  w.Tensorize(sum, m, n, k);
  w.Unroll(outer.back());
  for (const LoopRef& part : parts) w.Unroll(part);
}

LoopRef WarpgroupRollingPlan::WriteRootProduct(ScheduleWriter& w, const RollingTile& t,
                                               const LoopList& outer, const LoopList& parts,
                                               const LoopRef& k) const {
  TileProduct(w, Kernel().reduction, t.root, RowAxis(), ColumnAxis(), outer, parts, k);
  return outer.back();
}

void WarpgroupRollingPlan::WriteValues(ScheduleWriter& w, const RollingTile& t, const Root& root,
                                       const StageRef& values) const {
  chain_.values().WriteLines(w, values, t.threads(), root.iterations, LineOfValues(t));
}

void WarpgroupRollingPlan::WriteScores(ScheduleWriter& w, const RollingTile& t, const Root& root,
                                       const ScoreProduct& scores, const StageRef& queries,
                                       const StageRef& keys) const {
  const MatrixKernel& product = scores.product;
  const StageRef& sum = scores.sum();
  const auto [step, k] = w.Split(w.ReduceLoops(sum)[product.depth], ShapeOf(t.scores).k);
  TileProduct(w, sum, t.scores, scores.queries().own, scores.keys().own, {step}, {}, k);
  const size_t number = scores.queries_number;
  scores.keys().WriteLines(w, keys, t.threads(), root.iterations, LineOfKeys(t, scores));
  product.factors[number].WriteLines(w, queries, t.threads(), root.thread,
                                     LineOf(product, number, ShapeOf(t.scores).m, product.Depth()));
}

}  // namespace

const SketchRule kWarpgroupRollingRule = RollingRule<WarpgroupRollingPlan>("rolling_warpgroup");

}  // namespace heddle::search_space
