// Whole rows: stages that reduce rows, and what is computed from the results along the same rows,
// in one kernel. A group of neighbouring threads, part of a warp up to a whole block, makes a row:
// each thread reduces the runs that it reads, the group combines what they found, and where a row
// fits into registers it is read once. Prefixes of a row are held, too. Where rows are few, several
// blocks make parts of each, and a second kernel combines these; threads may then have several
// results each, which share what is read for them.
// What is reduced over the rows beside them, a thread keeps of its columns from one row of its
// block to the next; a second kernel has what is left.
#include "search_space/sketch/patterns/rows.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "search_space/ir/stmt.h"
#include "search_space/schedule/threads/share_scan.h"
#include "search_space/sketch/kernels/combine.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kShortestPart = 16;      // of a row, by one thread
constexpr int64_t kMostParts = 1024;       // of a row, over blocks
constexpr int64_t kMostBlocks = 16;        // a multiprocessor, of split rows
constexpr int64_t kMostPartThreads = 256;  // that combine them
constexpr int64_t kFewestTurns = 2;        // of a block that reduces over its rows

class RowsPlan : public KernelPlan {
 public:
  RowsPlan(Rows rows, const Target& target) : rows_(std::move(rows)), target_(target) {
    if (!rows_.beside.empty()) blocks_ = AddHole("blocks", Doubled(1, kMostBlocks), 0);
    if (rows_.results.size() > 1) results_ = AddHole("results", rows_.results, 0);
    if (!rows_.can_split || Blocks(1, 1) >= 2 * target.sm_count) return;
    const int64_t most = std::min(kMostParts, rows_.length / kShortestPart);
    split_ = AddHole("split", Doubled(1, std::max<int64_t>(1, most)), 0);
  }

  std::vector<uint8_t> Default() const override {  // a warp a row
    std::vector<uint8_t> choices(holes_.size(), 0);
    choices[threads_] = choices[rows_of_block_] = 3;
    const std::vector<int64_t>& threads = holes_[threads_].domain;
    // Of prefixes a thread holds what it makes.
    const int64_t most = rows_.HasScans() ? kMaxHeldElements / 2 : kMostSerialTerms;
    while (rows_.length > most * threads[choices[threads_]] &&
           choices[threads_] + size_t{1} < threads.size()) {
      ++choices[threads_];
      choices[rows_of_block_] -= choices[rows_of_block_] > 0 ? 1 : 0;
    }
    if (results_) choices[*results_] = static_cast<uint8_t>(rows_.results.size() - 1);
    return choices;
  }

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](absl::string_view why) { return Refusal(rows_.root, why); };
    const int64_t threads = v[threads_] * v[rows_of_block_];
    if (threads % kWarpThreads != 0 || threads > target_.max_threads_per_block) {
      return refuse(absl::StrCat(threads, " threads a block"));
    }
    const int64_t part = PartLength(v);
    const int64_t blocks = Blocks(RowsOfBlock(v) * Results(v), NeededParts(v));
    if (v[threads_] > kWarpThreads && v[threads_] * v[vector_] >= 2 * part) {
      return refuse(absl::StrCat(v[threads_], " threads for a row of ", part));
    }
    if (blocks_) HEDDLE_RETURN_IF_ERROR(CheckBeside(v));
    if (blocks > target_.max_grid) return refuse(absl::StrCat(blocks, " blocks"));
    // Parts are whole rounds, so that there may be some fewer; half as many are another choice.
    if (Parts(v) > 1 && (blocks > kMostBlocks * target_.sm_count || v[hold_] != kHoldNothing ||
                         2 * NeededParts(v) <= Parts(v))) {
      return refuse(absl::StrCat(Parts(v), " parts of a row are not all needed"));
    }
    const int64_t held = Elements(v);
    if (held > kMostSerialTerms) return refuse(absl::StrCat(held, " terms a thread"));
    const int64_t tensors = rows_.HeldTensors(v[hold_]);
    if (tensors > 0 && (held > kMaxHeldElements || held * tensors > kMaxHeldInAll ||
                        held * tensors * threads > target_.registers_per_sm / 2)) {
      return refuse(absl::StrCat(held, " elements a thread"));
    }
    if (held * (tensors + rows_.sums_beside) > kMaxHeldInAll) {
      return refuse(absl::StrCat(held, " elements and their sums a thread"));
    }
    if (v[unroll_] * v[vector_] * Results(v) > kMostUnrolled) {
      return refuse(absl::StrCat(v[unroll_] * v[vector_], " terms of ", Results(v), " results"));
    }
    if (v[unroll_] > 1 && (tensors > 0 || v[unroll_] * v[threads_] * v[vector_] > part)) {
      return refuse("nothing to unroll");
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    const double row = static_cast<double>(Elements(v) * v[threads_] * NeededParts(v));
    return row / static_cast<double>(rows_.length);
  }

  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    // Rows that fit are best read once, so most draws hold them.
    for (int attempt = 0; attempt < 3; ++attempt) {
      KernelPlan::Draw(rng, values);
      if (values[hold_] == kHoldNothing) continue;
      values[unroll_] = 1;
      if (Check(values).ok()) break;
    }
  }

  void Write(ScheduleWriter& w, HoleValues v) const override;

 private:
  static constexpr int64_t kMostUnrolled = 128;  // terms of a thread's results, written out

  std::vector<int64_t> Holds() const {
    std::vector<int64_t> holds = {kHoldNothing};
    if (rows_.HeldTensors(kHoldShared) > rows_.HeldTensors(kHoldNothing)) {
      holds.push_back(kHoldShared);
    }
    if (rows_.HeldTensors(kHoldEverything) > rows_.HeldTensors(kHoldShared)) {
      holds.push_back(kHoldEverything);
    }
    return holds;
  }
  // Of a row, over blocks, at most.
  int64_t Parts(HoleValues v) const { return split_ ? v[*split_] : 1; }
  // Of a thread.
  int64_t Results(HoleValues v) const { return results_ ? v[*results_] : 1; }
  // Elements of a row that one block makes: of a part, whole rounds of its threads.
  int64_t PartLength(HoleValues v) const {
    if (Parts(v) == 1) return rows_.length;
    const int64_t round = v[threads_] * v[vector_];
    return RoundUp(CeilDiv(rows_.length, Parts(v)), round);
  }
  int64_t NeededParts(HoleValues v) const { return CeilDiv(rows_.length, PartLength(v)); }
  // Of these, what one thread makes.
  int64_t Elements(HoleValues v) const {
    return CeilDiv(PartLength(v), v[threads_] * v[vector_]) * v[vector_];
  }
  // Rows that a block makes: what its threads make at once, or all that are reduced beside them.
  int64_t RowsOfBlock(HoleValues v) const {
    const int64_t at_once = v[rows_of_block_];
    if (!blocks_) return at_once;
    const int64_t sums = Blocks(rows_.rows_of_sum, 1);
    const int64_t parts = std::max<int64_t>(1, v[*blocks_] * target_.sm_count / sums);
    return RoundUp(CeilDiv(rows_.rows_of_sum, parts), at_once);
  }
  absl::Status CheckBeside(HoleValues v) const {
    const int64_t rows = RowsOfBlock(v), of_sum = rows_.rows_of_sum;
    if (rows < kFewestTurns * v[rows_of_block_] || rows > of_sum ||
        (Blocks(of_sum, 1) > 1 && of_sum % rows != 0)) {
      return absl::ResourceExhaustedError(
          absl::StrCat(rows_.root.tensor->name, ": ", rows, " of ", of_sum, " rows a block"));
    }
    return absl::OkStatus();
  }
  int64_t Blocks(int64_t rows_of_block, int64_t parts) const {
    int64_t rows = parts;
    for (int64_t e : rows_.extents) rows *= e;
    return CeilDiv(rows, rows_of_block);
  }
  LoopRef WriteRoot(ScheduleWriter& w, HoleValues v) const;
  void WriteBeside(ScheduleWriter& w, HoleValues v) const;
  void WriteReduction(ScheduleWriter& w, const StageRef& reduction, const BufferRef& of,
                      HoleValues v) const;
  void WriteParts(ScheduleWriter& w, HoleValues v) const;

  const Rows rows_;
  const Target target_;
  const HoleId threads_ =
      AddHole("threads", Doubled(4, std::min<int64_t>(1024, target_.max_threads_per_block)), 0);
  const HoleId rows_of_block_ = AddHole("rows", Doubled(1, kMaxRowsOfBlock), 0);
  const HoleId vector_ = AddHole("vector", Doubled(1, std::max<int64_t>(1, rows_.vector)), 0);
  const HoleId hold_ = AddHole("hold", Holds(), 0);
  const HoleId unroll_ = AddHole("unroll", {1, 2, 4}, 0);
  std::optional<HoleId> results_, split_, blocks_;  // not always there
};

// `rows` of a block, each of `threads`, of a stage without an axis along the row, which have so
// many results of it each. Returns the loop of the threads.
LoopRef WriteGroups(ScheduleWriter& w, const StageRef& root, int64_t rows, int64_t threads,
                    int64_t results = 1) {
  LoopList axes = w.Loops(root), of_thread;
  const LoopRef lane = w.Replicate(root, threads);
  LoopRef all = w.Fuse(axes);
  if (results > 1) {
    const auto [groups, result] = w.Split(all, results);
    all = groups;
    of_thread = {result};
  }
  const auto [block, row] = w.Split(all, rows);
  w.Reorder(Join({{block, row, lane}, of_thread}));
  const LoopRef thread = w.Fuse({row, lane});
  w.Bind(block, BindTo::kBlock);
  w.Bind(thread, BindTo::kThread);
  return thread;
}

// Returns the loop in which a row is made.
LoopRef RowsPlan::WriteRoot(ScheduleWriter& w, HoleValues v) const {
  const StageRef& root = rows_.root;
  if (!rows_.has_column) {
    return WriteGroups(w, root, v[rows_of_block_], v[threads_], Results(v));
  }
  LoopList axes = w.Loops(root), rest;
  if (rows_.results_at) {
    const auto at = axes.begin() + static_cast<std::ptrdiff_t>(*rows_.results_at);
    std::rotate(at, at + 1, axes.end());
    w.Reorder(axes);
  }
  const int64_t vector = rows_.results_at ? 1 : v[vector_];
  const auto parts = w.Split(axes.back(), v[threads_], vector);
  const LoopRef& lane = parts[1];
  rest = {parts[0], parts[2]};
  axes.pop_back();
  std::vector<int64_t> factors = {v[rows_of_block_]};
  if (blocks_) factors.insert(factors.begin(), RowsOfBlock(v) / v[rows_of_block_]);
  const LoopList rows = w.Split(w.Fuse(axes), factors);
  const LoopRef &block = rows.front(), &row = rows.back();
  const LoopList turns(rows.begin() + 1, rows.end() - 1);  // of a block that has several
  w.Reorder(Join({{block, row, lane}, turns, rest}));
  const LoopRef thread = w.Fuse({row, lane});
  w.Bind(block, BindTo::kBlock);
  w.Bind(thread, BindTo::kThread);
  if (vector > 1) w.Vectorize(rest.back());
  return turns.empty() ? thread : turns[0];
}

// `of`: the row's reduction, of which `reduction` makes all or parts.
void RowsPlan::WriteReduction(ScheduleWriter& w, const StageRef& reduction, const BufferRef& of,
                              HoleValues v) const {
  const LoopRef whole = w.Fuse(w.ReduceLoops(reduction));
  LoopRef lane;
  if (v[unroll_] > 1) {
    const auto parts = w.Split(whole, v[unroll_], v[threads_], v[vector_]);
    w.Unroll(parts[1]);
    lane = parts[2];
  } else {
    lane = w.Split(whole, v[threads_], v[vector_])[1];
  }
  w.Bind(lane, BindTo::kThread);
  if (Results(v) > 1) {
    // What is read for several results is read once.
    const LoopList terms = w.ReduceLoops(reduction);
    w.Reorder(Join({terms, w.DataLoops(reduction)}));
    if (v[vector_] > 1) w.Unroll(terms.back());
    const bool has_all = Results(v) == Blocks(1, 1);
    for (const BufferRef& input : has_all ? rows_.term_inputs : std::vector<BufferRef>{}) {
      const StageRef copy = w.CacheRead(input, Scope::kLocal, reduction);
      w.ComputeAt(copy, terms.back());
      const LoopList loops = w.Loops(copy);
      for (const LoopRef& loop : loops) {
        const bool is_wide =
            loop.var == loops.back().var &&
            AccessWidths(loop.var->extent, input->dtype).back() == loop.var->extent;
        if (loop.var->extent > 1) is_wide ? w.Vectorize(loop) : w.Unroll(loop);
      }
    }
  }
  if (v[vector_] == 1) return;
  for (const RowInput& in : rows_.inputs) {
    const auto& readers = in.reductions;
    if (rows_.IsKept(in, v[hold_]) || std::count(readers.begin(), readers.end(), of) != 1) {
      continue;
    }
    const StageRef run = w.CacheRead(in.tensor, Scope::kLocal, reduction);
    w.ComputeAt(run, lane);
    w.Vectorize(w.Loops(run).back());
  }
}

// One kernel makes parts of the rows, which another reads as rows that are as long as there are
// parts.
void RowsPlan::WriteParts(ScheduleWriter& w, HoleValues v) const {
  const StageRef& whole = rows_.stages[0].stage;
  const LoopRef row = w.Fuse(w.ReduceLoops(whole));
  const StageRef part = w.Rfactor(w.Split(row, PartLength(v))[0]);
  const StageRef results = w.Materialize(part, whole)[0];
  w.SetScope(part, Scope::kLocal);
  w.ComputeAt(part, WriteGroups(w, results, v[rows_of_block_], v[threads_], Results(v)));
  WriteReduction(w, part, whole.tensor, v);
  int64_t threads = kWarpThreads;
  while (threads < std::min(NeededParts(v), kMostPartThreads)) threads *= 2;
  w.SetScope(whole, Scope::kLocal);
  w.ComputeAt(whole, WriteGroups(w, rows_.root, 1, threads));
  w.Bind(w.Split(w.ReduceLoops(whole)[0], threads, 1)[1], BindTo::kThread);
}

// What is reduced over the rows, in two kernels.
void RowsPlan::WriteBeside(ScheduleWriter& w, HoleValues v) const {
  const int64_t rows = RowsOfBlock(v);
  for (const Rows::Beside& b : rows_.beside) {
    const std::vector<StageRef> parts =
        w.ReduceBeside(b.reduction, rows_.root, rows, v[rows_of_block_]);
    WriteCombineKernel(w, {b.root, b.reduction, parts, CeilDiv(rows_.rows_of_sum, rows)}, target_);
  }
}

void RowsPlan::Write(ScheduleWriter& w, HoleValues v) const {
  WriteBeside(w, v);
  for (const StageRef& s : rows_.inlined) w.ComputeInline(s);
  if (Parts(v) > 1) return WriteParts(w, v);
  for (const RowStage& s : rows_.stages) {
    if (Rows::IsInlined(s, v[hold_])) w.ComputeInline(s.stage);
  }
  const LoopRef around = WriteRoot(w, v);
  for (size_t i = rows_.stages.size(); i-- > 0;) {
    const RowStage& s = rows_.stages[i];
    if (Rows::IsInlined(s, v[hold_])) continue;
    w.SetScope(s.stage, Scope::kLocal);
    if (Rows::IsHeld(s, v[hold_])) w.Spread(s.stage, v[threads_], v[vector_]);
    if (s.scans()) w.ShareScan(s.stage, v[threads_], v[vector_], ScanGroup::kNeighbours);
    w.ComputeAt(s.stage, around);
  }
  for (const RowInput& in : rows_.inputs) {
    if (!rows_.IsKept(in, v[hold_])) continue;
    const StageRef row = w.CacheReadForKernel(in.tensor, Scope::kLocal, rows_.root);
    w.Spread(row, v[threads_], v[vector_]);
    w.ComputeAt(row, around);
  }
  for (const RowStage& s : rows_.stages) {
    if (s.reduces && !s.scans()) WriteReduction(w, s.stage, s.stage.tensor, v);
  }
}

std::unique_ptr<KernelPlan> PlanRows(const ProgramShape& shape, const KernelShape& kernel,
                                     const Target& target) {
  Rows rows = FindRows(shape, kernel);
  if (!rows.ok) return nullptr;
  return std::make_unique<RowsPlan>(std::move(rows), target);
}

// Tiles of a few results have few threads.
constexpr int64_t kFewResults = 32;

std::unique_ptr<KernelPlan> PlanFewRows(const ProgramShape& shape, const KernelShape& kernel,
                                        const Target& target) {
  if (kernel.reductions.size() != 1 || FindRows(shape, kernel).ok) return nullptr;
  Rows rows = FindFewRows(shape, kernel, kFewResults);
  if (!rows.ok) return nullptr;
  return std::make_unique<RowsPlan>(std::move(rows), target);
}

}  // namespace

const SketchRule kRowsRule = {
    .name = "rows", .apply = PlanRows, .takes_fused_kernels = true, .takes_beside = true};
const SketchRule kFewRowsRule = {.name = "rows", .apply = PlanFewRows};

}  // namespace heddle::search_space
