#include "search_space/sketch/programs/algorithms.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/parts.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/falling_levels.h"
#include "search_space/schedule/operands.h"
#include "search_space/schedule/prefix_reductions.h"
#include "search_space/schedule/rewrites/algebra/join_sums.h"
#include "search_space/schedule/rewrites/algebra/narrow_factors.h"
#include "search_space/schedule/rewrites/algebra/separate_window.h"
#include "search_space/schedule/rewrites/algebra/shift_moments.h"
#include "search_space/schedule/rewrites/algebra/winograd.h"
#include "search_space/schedule/rewrites/axes/collapse.h"
#include "search_space/schedule/rewrites/axes/merge_axes.h"
#include "search_space/schedule/rewrites/axes/pad_terms.h"
#include "search_space/schedule/rewrites/axes/phases.h"
#include "search_space/schedule/rewrites/axes/take_apart.h"
#include "search_space/schedule/rewrites/reductions/contract.h"
#include "search_space/schedule/rewrites/reductions/expand.h"
#include "search_space/schedule/rewrites/reductions/scan.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"
#include "search_space/schedule/scattered_terms.h"
#include "search_space/schedule/schedule.h"
#include "search_space/sketch/programs/form.h"

namespace heddle::search_space {
namespace {

// The values that a variable may have.
struct Side {
  const Variable* var;
  Interval values;
};

// Bounds of a sum with `sides` for variables; nothing is known of where in other terms they stand.
Interval BoundsIn(const Linear& sum, const std::vector<Side>& sides) {
  Interval bounds{sum.constant, sum.constant};
  for (const Term& t : sum.terms) {
    Interval term = BoundsOf(t);
    for (const Side& s : sides) {
      if (t.x->op != Op::kVar || t.div != 1 || t.mod != 0 || t.x->var.get() != s.var) continue;
      term = {t.coef * (t.coef > 0 ? s.values.min : s.values.max),
              t.coef * (t.coef > 0 ? s.values.max : s.values.min)};
    }
    bounds = {bounds.min + term.min, bounds.max + term.max};
  }
  return bounds;
}

// One of these sums is negative.
using Alternatives = std::vector<Linear>;

// Of all values in `sides` the share for which all conditions hold, at least: boxes are halved
// along their longest side until that is decided, and those that remain do not count.
double LeastShare(const std::vector<Alternatives>& conditions, std::vector<Side> sides,
                  int halvings) {
  bool all = true;
  for (const Alternatives& sums : conditions) {
    bool may_hold = false, holds = false;
    for (const Linear& sum : sums) {
      const Interval bounds = BoundsIn(sum, sides);
      may_hold = may_hold || bounds.min < 0;
      holds = holds || bounds.max < 0;
    }
    if (!may_hold) return 0;
    all = all && holds;
  }
  if (all) return 1;
  const auto length = [](const Side& s) { return s.values.max - s.values.min + 1; };
  const auto longest =
      std::max_element(sides.begin(), sides.end(),
                       [&](const Side& a, const Side& b) { return length(a) < length(b); });
  if (halvings == 0 || longest == sides.end() || length(*longest) == 1) return 0;
  const Interval whole = longest->values;
  const int64_t middle = whole.min + (whole.max - whole.min) / 2;
  const double lower =
      static_cast<double>(middle - whole.min + 1) / static_cast<double>(whole.max - whole.min + 1);
  longest->values = {whole.min, middle};
  const double in_lower = LeastShare(conditions, sides, halvings - 1);
  longest->values = {middle + 1, whole.max};
  return lower * in_lower + (1 - lower) * LeastShare(conditions, std::move(sides), halvings - 1);
}

// Comparisons with what tensors hold may hold nowhere.
void AddAlternatives(const Expr& condition, Alternatives& sums) {
  if (condition->op == Op::kOr) {
    for (const Expr& c : condition->args) AddAlternatives(c, sums);
  } else if (!ReadsIndices(condition)) {
    sums.push_back(Difference(condition->args[0], condition->args[1]));
  }
}

// The share of a sum's terms that its masks leave (skip_masked), at least.
double ShareOf(const ScheduledStage& sum) {
  // Of a triangle of rows and columns, boxes of a 128th each way are not decided.
  constexpr int kHalvings = 14;
  std::vector<Alternatives> conditions;
  std::vector<Side> sides;
  for (const Expr& c : sum.useful) {
    AddAlternatives(c, conditions.emplace_back());
    if (conditions.back().empty()) return 0;
    Visit(c, [&](const Expr& node) {
      if (node->op != Op::kVar) return;
      const bool known = std::any_of(sides.begin(), sides.end(),
                                     [&](const Side& s) { return s.var == node->var.get(); });
      if (!known) sides.push_back({node->var.get(), {0, node->var->extent - 1}});
    });
  }
  return LeastShare(conditions, std::move(sides), kHalvings);
}

// The schedule with sums that leave out what masks allow, through the stages that are computed
// elementwise between them.
Schedule Masked(Schedule schedule) {
  const auto reads_reduction = [&](const ScheduledStage& s) {
    bool reads = false;
    Visit(s.body, [&](const Expr& node) {
      if (node->op != Op::kLoad) return;
      const int read = schedule.FindStage(node->buffer.get());
      reads = reads || (read >= 0 && schedule.stage(read).is_reduction());
    });
    return reads;
  };
  const auto try_all = [&](const auto& step_of) {
    for (size_t i = 0; i < schedule.stages().size(); ++i) {
      // What does not apply leaves the schedule as it was.
      if (const auto step = step_of(schedule.stages()[i])) (void)Apply(*step, schedule);
    }
  };
  try_all([&](const ScheduledStage& s) -> std::optional<Step> {
    if (s.is_reduction() || s.is_output || s.materialized || reads_reduction(s)) return {};
    return ComputeInline{s.name()};
  });
  try_all([&](const ScheduledStage& s) -> std::optional<Step> {
    if (s.combiner != Combiner::kSum) return {};
    return SkipMasked{s.name()};
  });
  return schedule;
}

// The operations of a stage whose operands are grouped as tiles would, and each computed once for
// the axes on which it depends: a row's scale not for every term.
class LeastOperations {
 public:
  explicit LeastOperations(const ScheduledStage& stage) {
    for (const auto* axes : {&stage.axes, &stage.reduce_axes}) {
      for (const Var& axis : *axes) axes_.push_back(axis);
    }
    const double terms = Iterations(AxisSet(axes_.size(), true));
    count_ = stage.is_reduction() ? terms : 0;
    AxisSet all(axes_.size(), false);
    count_ += Of(OperandsOf(stage).body, all);
  }
  double count() const { return count_; }

 private:
  using AxisSet = std::vector<bool>;

  double Iterations(const AxisSet& set) const {
    double iterations = 1;
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (set[a]) iterations *= static_cast<double>(axes_[a]->extent);
    }
    return iterations;
  }

  // Of `e`, whose axes are added to `mentioned`.
  double Of(const Expr& e, AxisSet& mentioned) const {
    AxisSet own(axes_.size(), false);
    double count = 0, longer = 0;
    for (size_t i = 0; i < e->args.size(); ++i) {
      const double arg = Of(e->args[i], own);
      const bool is_side = e->op == Op::kSelect && i > 0;
      (is_side ? longer : count) = is_side ? std::max(longer, arg) : count + arg;
    }
    for (size_t a = 0; e->op == Op::kVar && a < axes_.size(); ++a) own[a] = axes_[a] == e->var;
    const bool is_free = e->args.empty() || e->op == Op::kLoad || e->op == Op::kCast ||
                         e->op == Op::kSelect || !IsFloat(e->type);
    for (size_t a = 0; a < axes_.size(); ++a) mentioned[a] = mentioned[a] || own[a];
    return count + longer + (is_free ? 0 : Iterations(own));
  }

  std::vector<Var> axes_;
  double count_ = 0;
};

double FlopsOf(const Schedule& schedule) {
  const Schedule masked = Masked(schedule);
  double flops = 0;
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    // Indices may name no place for any term.
    if (PlacesOfTerm(s) > 1) continue;
    // Threads that share a scan compute each term once (share_scan).
    const int64_t length = ScanLength(s);
    flops += LeastOperations(s).count() *
             (length > 0 ? 1.0 / static_cast<double>(length) : ShareOf(masked.stages()[i]));
  }
  return flops;
}

// Of a thread's consecutive elements that many terms are read at once, which are in registers.
constexpr int64_t kScanChunk = 16;
// Up to here the definition is as good.
constexpr int64_t kShortestScan = 64;
// Of one program: each is several kernels.
constexpr size_t kMostScans = 16;
// So many chunks are cheaper to add up for each one anew than in two more kernels.
constexpr int64_t kMostChunks = 256;

void AddScans(const Schedule& schedule, int stage, std::vector<Step>& steps) {
  const ScheduledStage& whole = schedule.stage(stage);
  const auto mask = PrefixMaskOf(whole);
  if (!mask || mask->in_windows) return;
  // Between chunks all decays to one element's level, which may not be a peak of levels.
  if (mask->level != nullptr && !DoLevelsFall(schedule, whole, *mask)) return;
  int64_t length = ScanLength(whole);
  if (length <= kShortestScan || steps.size() >= kMostScans) return;
  std::string name = schedule.stage(stage).name();
  steps.push_back(ScanChunks{name, kScanChunk});
  while ((length = (length + kScanChunk - 1) / kScanChunk) > kMostChunks) {
    name += ".offset.acc";
    steps.push_back(ScanChunks{name, kScanChunk});
  }
}

// Is the sum a product of matrices whose units would take its axes only as one: fills no axis half
// of what these multiply at once, but all of them together?
bool IsProductOfSmallWindows(const Stage& sum) {
  const std::vector<Expr> loads = LoadsIn(sum.body);
  if (loads.size() != 2) return false;
  if (!HasOwnAxis(sum, loads[0], loads[1]) || !HasOwnAxis(sum, loads[1], loads[0])) return false;
  int64_t longest = 1;
  for (const Var& axis : sum.reduce_axes) longest = std::max(longest, axis->extent);
  const int64_t terms = ShapeOf(WarpInstruction(loads[0]->buffer->dtype)).k;
  return 2 * longest < terms && 2 * ExtentOf(sum.reduce_axes) >= terms;
}

// The steps, of those that `steps_of` proposes for each of `stages`, that apply one behind the
// other, and behind `before`.
template <typename Stages, typename StepsOf>
std::vector<Step> ThoseThatApply(const std::shared_ptr<const TensorProgram>& program,
                                 const Stages& stages, const StepsOf& steps_of,
                                 const std::vector<Step>& before = {}) {
  Schedule schedule(program);
  std::vector<Step> applied;
  if (!Apply(before, schedule).ok()) return applied;
  for (const auto& stage : stages) {
    for (const Step& step : steps_of(stage)) {
      if (Apply(step, schedule).ok()) applied.push_back(step);
    }
  }
  return applied;
}

bool ReducesSeveral(const Stage& stage) {
  return stage.is_reduction() && ReadsSeveralTensors(stage.body);
}

// Sums of what units for matrices take, of fewer and longer axes.
std::vector<Step> FlatteningSteps(const Stage& stage) {
  if (!ReducesSeveral(stage)) return {};
  const std::vector<Expr> loads = LoadsIn(stage.body);
  const bool is_narrow = std::all_of(
      loads.begin(), loads.end(), [](const Expr& load) { return IsNarrow(load->buffer->dtype); });
  if (!is_narrow) return {};
  std::vector<Step> steps = {FlattenAxes{stage.name()}};
  if (IsProductOfSmallWindows(stage)) steps.push_back(FlattenSumAxes{stage.name()});
  return steps;
}

// Do all stages that read `stage` do so at one index along `dim` each?
bool IsReadAtOneIndex(const TensorProgram& program, const Stage& stage, size_t dim) {
  return std::all_of(program.stages.begin(), program.stages.end(), [&](const Stage& reader) {
    const Expr* first = nullptr;
    bool is_one = true;
    Visit(reader.body, [&](const Expr& e) {
      if (e->op != Op::kLoad || e->buffer != stage.tensor) return;
      is_one = is_one && (first == nullptr || StructurallyEqual(*first, e->args[dim]));
      first = &e->args[dim];
    });
    return is_one;
  });
}

// Of long sums of which each reader has a number of an axis to itself, such as a packed
// projection's parts. What reads several computes with them at once.
std::vector<Step> TakingApartSteps(const std::shared_ptr<const TensorProgram>& program) {
  static constexpr int64_t kFewestTerms = 32;
  return ThoseThatApply(program, program->stages, [&](const Stage& stage) {
    std::vector<Step> steps;
    const bool is_long =
        stage.combiner == Combiner::kSum && ExtentOf(stage.reduce_axes) >= kFewestTerms;
    for (size_t dim = 0; dim < stage.axes.size() && is_long; ++dim) {
      if (IsReadAtOneIndex(*program, stage, dim))
        steps.push_back(TakeApart{stage.name(), stage.axes[dim]->name});
    }
    return steps;
  });
}

std::vector<Step> ExpandingSteps(const TensorProgram& program) {
  std::vector<Step> steps;
  for (const std::string& name : TermsWorthExpanding(program)) steps.push_back(ExpandTerms{name});
  return steps;
}

std::vector<Step> ScanningSteps(const std::shared_ptr<const TensorProgram>& program) {
  std::vector<Step> steps;
  const Schedule schedule(program);
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    AddScans(schedule, static_cast<int>(i), steps);
  }
  return steps;
}

std::vector<Step> MergingSteps(const std::shared_ptr<const TensorProgram>& program) {
  const auto steps_of = [](const AxesToMerge& axes) {
    return std::vector<Step>{MergeAxes{axes.stage, axes.outer, axes.inner}};
  };
  return ThoseThatApply(program, RowsWorthMerging(*program), steps_of);
}

// Sums that would be too many terms to count are left alone. What is padded is split, too.
std::vector<Step> PaddingSteps(const std::shared_ptr<const TensorProgram>& program) {
  Schedule schedule(program);
  std::vector<Step> steps;
  for (const auto& [name, multiple] : TermsWorthPadding(*program)) {
    const Step step = PadTerms{name, multiple};
    if (Apply(step, schedule).ok()) steps.push_back(step);
  }
  return steps;
}

std::vector<Step> GatheredPaddingSteps(const std::shared_ptr<const TensorProgram>& program) {
  const auto steps_of = [](const TermsToPad& terms) {
    return std::vector<Step>{PadTerms{terms.stage, terms.multiple}};
  };
  return ThoseThatApply(program, GatheredTermsWorthPadding(*program), steps_of);
}

// Of the program's sums, behind `before`: those alone for which the check of the definition itself
// allows it.
std::vector<Step> SplittingSteps(const std::shared_ptr<const TensorProgram>& program,
                                 const std::vector<Step>& before = {}) {
  const auto steps_of = [&](const Stage& stage) {
    const bool may = FindSplittable(*program, stage).has_value();
    return may ? std::vector<Step>{SplitOperand{stage.name()}} : std::vector<Step>{};
  };
  return ThoseThatApply(program, program->stages, steps_of, before);
}

// Proposes the step of this type for every stage, or those that reduce several tensors.
template <typename RewritingStep>
constexpr auto kOfEach =
    [](const auto& stage) { return std::vector<Step>{RewritingStep{stage.name()}}; };
template <typename RewritingStep>
constexpr auto kOfReductions = [](const Stage& stage) {
  return ReducesSeveral(stage) ? std::vector<Step>{RewritingStep{stage.name()}}
                               : std::vector<Step>{};
};

}  // namespace

bool ReadsSeveralTensors(const Expr& body) {
  absl::flat_hash_set<const Buffer*> tensors;
  Visit(body, [&](const Expr& node) {
    if (IsValueLoad(node)) tensors.insert(node->buffer.get());
  });
  return tensors.size() > 1;
}

std::vector<Algorithm> AlgorithmsOf(const std::shared_ptr<const TensorProgram>& program) {
  std::vector<Step> padding = PaddingSteps(program);
  if (!padding.empty()) {
    const std::vector<Step> splitting = SplittingSteps(program, padding);
    padding.insert(padding.end(), splitting.begin(), splitting.end());
  }
  const auto of_stages = [&](const auto& steps_of) {
    return ThoseThatApply(program, program->stages, steps_of);
  };
  // An output's reduction is a stage of its own there.
  const std::vector<ScheduledStage> scheduled = Schedule(program).stages();
  const auto of_scheduled = [&](const auto& steps_of) {
    return ThoseThatApply(program, scheduled, steps_of);
  };
  const std::vector<Step> collapsing = of_stages(kOfReductions<CollapseAxes>);
  std::vector<Algorithm> algorithms = {
      {"definition", {}},
      {"collapse", collapsing},
      {.name = "merge",
       .steps = collapsing.empty() ? MergingSteps(program) : std::vector<Step>{},
       .only_matrices = true},
      {.name = "flatten", .steps = of_stages(FlatteningSteps), .only_matrices = true},
      {"contract", of_stages(kOfReductions<Contract>)},
      {"winograd", of_scheduled(kOfEach<Winograd>)},
      {"phases", of_scheduled(kOfEach<Phases>)},
      {"scan", ScanningSteps(program)},
      {.name = "moments", .steps = of_stages(kOfEach<ShiftMoments>), .together = true},
      {"expand", ExpandingSteps(*program)},
      {.name = "narrow", .steps = of_stages(kOfEach<NarrowFactors>), .only_matrices = true},
      {"windows", of_stages(kOfEach<SeparateWindow>)},
      {"join", of_stages(kOfReductions<JoinSums>)},
      {.name = "by_part", .steps = TakingApartSteps(program), .only_matrices = true},
      {.name = "pad_gathered", .steps = GatheredPaddingSteps(program), .only_matrices = true},
      {.name = "split_operand",
       .steps = SplittingSteps(program),
       .only_matrices = true,
       .is_last = true},
      {.name = "pad_terms", .steps = padding, .only_matrices = true, .is_last = true}};
  const auto is_nothing = [](const Algorithm& a) { return a.steps.empty(); };
  algorithms.erase(std::remove_if(algorithms.begin() + 1, algorithms.end(), is_nothing),
                   algorithms.end());
  return algorithms;
}

double LeastFlops(const TensorProgram& program) {
  double least = program.Flops();
  const auto shared = FormOf(std::make_shared<const TensorProgram>(program)).program;
  for (const Algorithm& algorithm : AlgorithmsOf(shared)) {
    Schedule schedule(shared);
    if (Apply(algorithm.steps, schedule).ok()) least = std::min(least, FlopsOf(schedule));
  }
  return least;
}

}  // namespace heddle::search_space
