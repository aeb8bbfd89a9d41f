// Whole rows along an axis that is not the innermost one, such as norms over channels that come
// first or a softmax of columns, in one kernel. Threads side by side make rows that lie side by
// side, a short vector of them each, so that what they read together is one run of memory; several
// such lines of threads share the rows, of which each holds its elements in registers. What they
// have reduced is combined through shared memory. Every element is read once and written once.
#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "search_space/ir/stmt.h"
#include "search_space/sketch/patterns/rows.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostThreads = 256;  // that share a row
constexpr int64_t kMostLanes = 128;    // threads side by side
constexpr int64_t kSectorBytes = 32;   // that memory moves at least

class StridedRowsPlan : public KernelPlan {
 public:
  StridedRowsPlan(Rows rows, const Target& target) : rows_(std::move(rows)), target_(target) {
    for (int64_t e : rows_.extents) number_ *= e;
    reductions_ = std::count_if(rows_.stages.begin(), rows_.stages.end(),
                                [](const RowStage& s) { return s.reduces; });
  }

  // Can a block hold some rows?
  bool HasHeld() const { return Best().has_value(); }

  std::vector<uint8_t> Default() const override {
    return Best().value_or(std::vector<uint8_t>(holes_.size(), 0));
  }

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](absl::string_view why) { return Refusal(rows_.root, why); };
    const int64_t threads = v[threads_] * v[lanes_], columns = v[lanes_] * v[vector_];
    if (threads % kWarpThreads != 0 || threads > target_.max_threads_per_block) {
      return refuse(absl::StrCat(threads, " threads a block"));
    }
    if (columns < std::min(number_, kSectorBytes / SizeOf(rows_.root.tensor->dtype)) ||
        (v[lanes_] > 1 && columns >= 2 * number_)) {
      return refuse(absl::StrCat(columns, " of ", number_, " rows side by side"));
    }
    if (v[threads_] > 1 && v[threads_] >= 2 * rows_.length) {
      return refuse(absl::StrCat(v[threads_], " threads for a row of ", rows_.length));
    }
    if (Blocks(v) > target_.max_grid) return refuse(absl::StrCat(Blocks(v), " blocks"));
    const int64_t shared = reductions_ * threads * v[vector_] * kAccumulatorBytes;
    if (shared > target_.max_shared_bytes_per_block) {
      return refuse(absl::StrCat(shared, " bytes of shared memory"));
    }
    const int64_t terms = CeilDiv(rows_.length, v[threads_]);
    if (terms > kMostSerialTerms) return refuse(absl::StrCat(terms, " terms a thread"));
    if (v[hold_] == kHoldNothing) {
      return v[unroll_] > 1 && v[unroll_] > terms ? refuse("nothing to unroll") : absl::OkStatus();
    }
    const int64_t held = terms * v[vector_], in_all = held * rows_.HeldTensors(v[hold_]);
    if (v[unroll_] > 1 || held > kMaxHeldElements || in_all > kMaxHeldInAll ||
        in_all * threads > target_.registers_per_sm / 2) {
      return refuse(absl::StrCat(held, " elements a thread"));
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    const auto rounded = static_cast<double>(RoundUp(rows_.length, v[threads_]));
    return rounded / static_cast<double>(rows_.length) *
           static_cast<double>(Blocks(v) * v[lanes_] * v[vector_]) / static_cast<double>(number_);
  }

  // Rows that fit are best read once, so most draws hold them.
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      KernelPlan::Draw(rng, values);
      if (values[hold_] == kHoldNothing && attempt < kAttempts / 2) continue;
      if (values[hold_] != kHoldNothing) values[unroll_] = 1;
      if (Check(values).ok()) break;
    }
  }

 protected:
  void Write(ScheduleWriter& w, HoleValues v) const override {
    for (const StageRef& s : rows_.inlined) w.ComputeInline(s);
    for (const RowStage& s : rows_.stages) {
      if (Rows::IsInlined(s, v[hold_])) w.ComputeInline(s.stage);
    }
    const LoopRef thread = WriteRoot(w, v);
    for (size_t i = rows_.stages.size(); i-- > 0;) {
      const RowStage& s = rows_.stages[i];
      if (Rows::IsInlined(s, v[hold_])) continue;
      w.SetScope(s.stage, Scope::kLocal);
      if (Rows::IsHeld(s, v[hold_])) w.Spread(s.stage, rows_.column_at, v[threads_], 1);
      w.ComputeAt(s.stage, thread);
    }
    for (const RowInput& in : rows_.inputs) {
      if (!Rows::IsHeld(in, v[hold_])) continue;
      const StageRef row = w.CacheReadForKernel(in.tensor, Scope::kLocal, rows_.root);
      w.Spread(row, in.along, v[threads_], 1);
      WriteRun(w, row, thread, v);
    }
    for (const RowStage& s : rows_.stages) {
      if (s.reduces) WriteReduction(w, s.stage, v);
    }
  }

 private:
  static constexpr int kAttempts = 8;
  // What the default would have if it can: bytes side by side, elements a thread, threads a block.
  static constexpr int64_t kPreferredBytes = 128, kPreferredHeld = 32, kPreferredThreads = 256;

  std::vector<int64_t> Holds() const {
    if (rows_.HeldTensors(kHoldEverything) <= rows_.HeldTensors(kHoldShared)) {
      return {kHoldNothing, kHoldShared};
    }
    return {kHoldNothing, kHoldShared, kHoldEverything};
  }
  int64_t Blocks(HoleValues v) const { return CeilDiv(number_, v[lanes_] * v[vector_]); }

  // The best guess of what holds the rows.
  std::optional<std::vector<uint8_t>> Best() const {
    std::optional<std::vector<uint8_t>> best;
    std::array<int64_t, 4> best_score{};
    for (size_t t = 0; t < holes_[threads_].domain.size(); ++t) {
      for (size_t l = 0; l < holes_[lanes_].domain.size(); ++l) {
        for (size_t x = 0; x < holes_[vector_].domain.size(); ++x) {
          const std::vector<int64_t> v = {holes_[threads_].domain[t], holes_[lanes_].domain[l],
                                          holes_[vector_].domain[x], kHoldShared, 1};
          if (!Check(v).ok()) continue;
          const int64_t bytes = v[lanes_] * v[vector_] * SizeOf(rows_.root.tensor->dtype);
          const int64_t held = CeilDiv(rows_.length, v[threads_]) * v[vector_];
          const int64_t threads = v[threads_] * v[lanes_];
          const std::array<int64_t, 4> score = {
              std::min(bytes, kPreferredBytes), -std::max(held, kPreferredHeld), v[vector_],
              -std::max(threads, kPreferredThreads) / std::min(threads, kPreferredThreads)};
          if (best.has_value() && score <= best_score) continue;
          best_score = score;
          best = {static_cast<uint8_t>(t), static_cast<uint8_t>(l), static_cast<uint8_t>(x), 1, 0};
        }
      }
    }
    return best;
  }

  // Returns the loop of the threads.
  LoopRef WriteRoot(ScheduleWriter& w, HoleValues v) const {
    const StageRef& root = rows_.root;
    LoopList axes = w.Loops(root), rounds;
    LoopRef part;
    if (rows_.has_column) {
      const auto at = axes.begin() + static_cast<std::ptrdiff_t>(rows_.column_at);
      const auto [round, of_round] = w.Split(*at, v[threads_]);
      axes.erase(at);
      rounds = {round};
      part = of_round;
    } else {
      part = w.Replicate(root, v[threads_]);
    }
    w.Reorder(Join({axes, {part}, rounds}));
    const auto [block, lane, run] = w.Split(w.Fuse(axes), v[lanes_], v[vector_]);
    w.Reorder(Join({{block, part, lane}, rounds, {run}}));
    const LoopRef thread = w.Fuse({part, lane});
    w.Bind(block, BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    if (v[vector_] > 1) w.Vectorize(run);
    return thread;
  }

  void WriteReduction(ScheduleWriter& w, const StageRef& reduction, HoleValues v) const {
    const LoopList data = w.DataLoops(reduction);
    const LoopRef row = w.ReduceLoops(reduction)[0];
    const LoopList parts = v[unroll_] > 1
                               ? w.Split(row, std::vector<int64_t>{v[unroll_], v[threads_]})
                               : w.Split(row, std::vector<int64_t>{v[threads_]});
    if (v[unroll_] > 1) w.Unroll(parts[1]);
    w.Reorder(Join({parts, data}));
    w.Bind(parts.back(), BindTo::kSliceAll);
    if (v[vector_] == 1) return;
    for (const RowInput& in : rows_.inputs) {
      const auto& readers = in.reductions;
      if (Rows::IsHeld(in, v[hold_]) ||
          std::count(readers.begin(), readers.end(), reduction.tensor) != 1) {
        continue;
      }
      WriteRun(w, w.CacheRead(in.tensor, Scope::kLocal, reduction), parts.back(), v);
    }
  }

  // Has what is read of an input be read in vectors, in a loop.
  void WriteRun(ScheduleWriter& w, const StageRef& run, const LoopRef& loop, HoleValues v) const {
    w.ComputeAt(run, loop);
    if (v[vector_] == 1) return;
    LoopList loops = w.Loops(run);
    const auto behind = std::find_if(loops.rbegin(), loops.rend(),
                                     [](const LoopRef& l) { return l.var->extent > 1; });
    std::rotate(loops.rbegin(), behind, behind + 1);
    w.Reorder(loops);
    w.Vectorize(loops.back());
  }

  const Rows rows_;
  const Target target_;
  const HoleId threads_ = AddHole("threads", Doubled(1, kMostThreads), 0);
  const HoleId lanes_ = AddHole("lanes", Doubled(1, kMostLanes), 0);
  const HoleId vector_ = AddHole("vector", Doubled(1, rows_.vector), 0);
  const HoleId hold_ = AddHole("hold", Holds(), 0);
  const HoleId unroll_ = AddHole("unroll", {1, 2, 4, 8}, 0);
  int64_t number_ = 1;  // of rows
  int64_t reductions_ = 0;
};

std::unique_ptr<KernelPlan> PlanStridedRows(const ProgramShape& shape, const KernelShape& kernel,
                                            const Target& target) {
  Rows rows = FindStridedRows(shape, kernel);
  if (!rows.ok) return nullptr;
  auto plan = std::make_unique<StridedRowsPlan>(std::move(rows), target);
  if (!plan->HasHeld()) return nullptr;
  return plan;
}

}  // namespace

const SketchRule kStridedRowsRule = {
    .name = "strided_rows", .apply = PlanStridedRows, .takes_fused_kernels = true};

}  // namespace heddle::search_space
