// Reductions of prefixes, such as cumulative sums, along one axis: a group of threads holds a whole
// row in registers, so that it is read once, and shares its scan. Along the innermost axis the
// groups are neighbours; along another one threads stand side by side across the rows, so that what
// they read together lies side by side, too.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/stmt.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/threads/share_scan.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kFewestColumns = 8, kMostColumns = 128;  // of a block
constexpr int64_t kMostSlices = 128;

struct Prefixes {
  StageRef root, scan;
  std::vector<StageRef> inlined;
  size_t axis = 0;      // of the root: the one along which prefixes are
  int64_t length = 1;   // of that, or of a window of it
  int64_t others = 1;   // product of the other extents
  bool slices = false;  // is it not the innermost axis, or do terms decay?
  bool decays = false;
  int64_t windows = 1;  // of the axis, of `length` elements each
};

// The one scan of a kernel, whose results the root reads at its own element.
std::optional<Prefixes> FindPrefixes(const ProgramShape& shape, const KernelShape& kernel) {
  if (kernel.fused || kernel.reductions.size() != 1) return std::nullopt;
  const ScheduledStage& root = shape.stage(kernel.root);
  const ScheduledStage& stage = shape.stage(kernel.reductions[0]);
  const std::optional<Scan> scan = ScanOf(stage);
  const bool alone = !shape.schedule.HasCompanions(root) && !shape.schedule.HasCompanions(stage);
  if (!scan || !alone || root.axes.size() != stage.axes.size()) return std::nullopt;
  Prefixes found{.root = {root.tensor}, .scan = {stage.tensor}};
  bool own = true;
  std::optional<size_t> axis;
  Visit(root.body, [&](const Expr& e) {
    if (e->op != Op::kLoad || e->buffer != stage.tensor) return;
    for (size_t i = 0; i < e->args.size(); ++i) {
      const int at = e->args[i]->op == Op::kVar ? root.FindAxis(e->args[i]->var) : -1;
      own = own && at >= 0 && root.axes[static_cast<size_t>(at)]->extent == stage.axes[i]->extent;
      if (!own || i != scan->axis) continue;
      own = !axis || *axis == static_cast<size_t>(at);
      axis = static_cast<size_t>(at);
    }
  });
  if (!own || !axis) return std::nullopt;
  found.axis = *axis;
  found.length = ScanLength(stage);
  found.windows = CeilDiv(root.axes[*axis]->extent, found.length);
  found.others = ExtentOf(root.axes) / root.axes[*axis]->extent;
  // Rows of a block are those of other axes, as a thread's part of a window is told by its number.
  if (found.windows > 1 && found.others == 1) return std::nullopt;
  found.decays = scan->level != nullptr;
  found.slices = found.decays || *axis + 1 < root.axes.size();
  for (int s : kernel.stageable) found.inlined.push_back({shape.stage(s).tensor});
  return found;
}

// The inputs that the scan reads along its rows, an element a term, and that nothing else reads.
std::vector<BufferRef> RowsReadBy(const Schedule& schedule, const StageRef& scan) {
  const ScheduledStage& stage = schedule.stage(schedule.FindStage(scan.tensor.get()));
  if (stage.reduce_axes.size() != 1) return {};
  const Var& r = stage.reduce_axes[0];
  std::vector<BufferRef> rows, otherwise;
  for (const Expr& load : LoadsIn(stage.body)) {
    const bool along =
        IsVar(load->args.back(), r) && load->buffer->shape.back() == r->extent &&
        std::none_of(load->args.begin(), load->args.end() - 1,
                     [&](const Expr& index) { return MentionsAny(index, {r.get()}); }) &&
        std::count(rows.begin(), rows.end(), load->buffer) == 0 &&
        schedule.OnlyReaderOf(load->buffer.get()).has_value();
    (along ? rows : otherwise).push_back(load->buffer);
  }
  std::erase_if(rows, [&](const BufferRef& row) {
    return std::count(otherwise.begin(), otherwise.end(), row) > 0;
  });
  return rows;
}

class PrefixPlan : public KernelPlan {
 public:
  PrefixPlan(Prefixes prefixes, const Target& target)
      : prefixes_(std::move(prefixes)), target_(target) {}

  // As few elements a thread as can be, then as many rows.
  std::vector<uint8_t> Default() const override {
    std::vector<uint8_t> choices(holes_.size(), 0), best = choices;
    for (size_t t = 0; t < holes_[threads_].domain.size(); ++t) {
      for (size_t r = 0; r < holes_[rows_].domain.size(); ++r) {
        for (size_t v = 0; v < holes_[vector_].domain.size(); ++v) {
          const std::vector<int64_t> values = {holes_[threads_].domain[t], holes_[rows_].domain[r],
                                               holes_[vector_].domain[v]};
          if (!Check(values).ok()) continue;
          best = {static_cast<uint8_t>(t), static_cast<uint8_t>(r), static_cast<uint8_t>(v)};
          if (values[threads_] * values[rows_] >= kPreferredThreads) return best;
        }
      }
    }
    return best;
  }

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](absl::string_view why) { return Refusal(prefixes_.root, why); };
    const int64_t threads = v[threads_] * v[rows_], held = Rounds(v) * v[vector_];
    if (threads % kWarpThreads != 0 || threads > target_.max_threads_per_block) {
      return refuse(absl::StrCat(threads, " threads a block"));
    }
    const int64_t registers = (prefixes_.decays ? 3 : 2) * held +
                              (prefixes_.decays ? 4 : 3) * Rounds(v) + kOtherRegisters;
    if (held > kMaxHeldElements || registers > target_.max_registers_per_thread ||
        registers * threads > target_.registers_per_sm) {
      return refuse(absl::StrCat(held, " elements a thread of ", threads));
    }
    if (prefixes_.windows > 1 && Rounds(v) * v[threads_] * v[vector_] != prefixes_.length) {
      return refuse(absl::StrCat(v[threads_], " threads for a window of ", prefixes_.length));
    }
    if (v[threads_] * v[vector_] >= 2 * std::max<int64_t>(prefixes_.length, 2)) {
      return refuse(absl::StrCat(v[threads_], " threads for a row of ", prefixes_.length));
    }
    const int64_t bytes = prefixes_.decays ? 16 : 8;
    if (prefixes_.slices && Rounds(v) * threads * bytes > target_.max_shared_bytes_per_block) {
      return refuse(absl::StrCat(Rounds(v), " runs of ", threads, " threads in shared memory"));
    }
    if (Blocks(v) > target_.max_grid) return refuse(absl::StrCat(Blocks(v), " blocks"));
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    const double row = static_cast<double>(Rounds(v) * v[threads_] * v[vector_]);
    return row / static_cast<double>(prefixes_.length) *
           static_cast<double>(CeilDiv(prefixes_.others, v[rows_]) * v[rows_]) /
           static_cast<double>(prefixes_.others);
  }

  void Write(ScheduleWriter& w, HoleValues v) const override {
    for (const StageRef& s : prefixes_.inlined) w.ComputeInline(s);
    LoopList others = w.Loops(prefixes_.root);
    const auto at = others.begin() + static_cast<std::ptrdiff_t>(prefixes_.axis);
    LoopRef row = *at;
    others.erase(at);
    LoopList windows;
    if (prefixes_.windows > 1) {
      const auto [window, inner] = w.Split(row, prefixes_.length);
      windows = {window};
      row = inner;
    }
    if (others.empty()) {
      const auto [whole, inner] = w.Split(row, Rounds(v) * v[threads_] * v[vector_]);
      others = {whole};
      row = inner;
    }
    w.Reorder(Join({windows, others, {row}}));
    const auto [of_others, rows] = w.Split(w.Fuse(others), v[rows_]);
    LoopList blocks = Join({windows, {of_others}});
    const auto [round, lane, run] = w.Split(row, v[threads_], v[vector_]);
    const LoopList threads = prefixes_.slices ? LoopList{lane, rows} : LoopList{rows, lane};
    w.Reorder(Join({blocks, threads, {round, run}}));
    const LoopRef thread = w.Fuse(threads);
    w.Bind(w.Fuse(blocks), BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    const bool wide = !prefixes_.slices && v[vector_] > 1;
    if (wide) w.Vectorize(run);
    w.SetScope(prefixes_.scan, Scope::kLocal);
    w.ShareScan(prefixes_.scan, v[threads_], v[vector_],
                prefixes_.slices ? ScanGroup::kSlices : ScanGroup::kNeighbours);
    w.ComputeAt(prefixes_.scan, thread);
    if (!wide) return;
    for (const BufferRef& tensor : RowsReadBy(w.schedule(), prefixes_.scan)) {
      const StageRef held = w.CacheRead(tensor, Scope::kLocal, prefixes_.scan);
      w.Spread(held, v[threads_], v[vector_]);
      w.ComputeAt(held, thread);
    }
  }

 private:
  // Of a thread beside what it holds of a row, as it was read and as it is reduced.
  static constexpr int64_t kOtherRegisters = 32;

  static constexpr int64_t kPreferredThreads = 256;

  int64_t Rounds(HoleValues v) const { return CeilDiv(prefixes_.length, v[threads_] * v[vector_]); }
  int64_t Blocks(HoleValues v) const {
    return prefixes_.windows * CeilDiv(prefixes_.others, v[rows_]);
  }

  const Prefixes prefixes_;
  const Target target_;
  const HoleId threads_ = AddHole(
      "threads", Doubled(2, prefixes_.slices ? kMostSlices : target_.max_threads_per_block), 0);
  const HoleId rows_ = prefixes_.slices
                           ? AddHole("columns", Doubled(kFewestColumns, kMostColumns), 0)
                           : AddHole("rows", Doubled(1, kMaxRowsOfBlock), 0);
  const HoleId vector_ = prefixes_.slices ? AddHole("run", Doubled(1, kMaxHeldElements), 0)
                                          : AddHole("vector", Doubled(1, 16), 0);
};

std::unique_ptr<KernelPlan> PlanPrefixes(const ProgramShape& shape, const KernelShape& kernel,
                                         const Target& target) {
  auto prefixes = FindPrefixes(shape, kernel);
  if (!prefixes.has_value()) return nullptr;
  return std::make_unique<PrefixPlan>(*std::move(prefixes), target);
}

}  // namespace

const SketchRule kPrefixRule = {.name = "prefix", .apply = PlanPrefixes};

}  // namespace heddle::search_space
