#include "search_space/sketch/programs/algorithms.h"

#include <algorithm>
#include <utility>

#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/analysis/falling_levels.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
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
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {
namespace {

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
  std::vector<Step> steps = ThoseThatApply(program, RowsWorthMerging(*program), steps_of);
  Schedule merged(program);
  if (!Apply(steps, merged).ok()) return steps;
  const std::vector<Step> apart =
      ThoseThatApply(program, RowsApartWorthMerging(merged.program()), steps_of, steps);
  steps.insert(steps.end(), apart.begin(), apart.end());
  return steps;
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

// Of convolutions whose channels fill no vectors. Flattened behind it, as others are.
std::vector<Step> ChannelPaddingSteps(const std::shared_ptr<const TensorProgram>& program) {
  const auto steps_of = [](const TermsToPad& terms) {
    return std::vector<Step>{PadTerms{terms.stage, terms.multiple}};
  };
  std::vector<Step> steps = ThoseThatApply(program, ChannelsWorthPadding(*program), steps_of);
  Schedule padded(program);
  if (steps.empty() || !Apply(steps, padded).ok()) return {};
  const std::vector<Step> flattened =
      ThoseThatApply(program, padded.program().stages, FlatteningSteps, steps);
  steps.insert(steps.end(), flattened.begin(), flattened.end());
  return steps;
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
      {.name = "pad_channels", .steps = ChannelPaddingSteps(program), .only_matrices = true},
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

}  // namespace heddle::search_space
