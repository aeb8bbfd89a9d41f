#include "search_space/sketch/programs/plans.h"

#include <algorithm>
#include <random>
#include <utility>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/windows.h"
#include "search_space/schedule/analysis/scattered_terms.h"

namespace heddle::search_space {
namespace {

// In the order in which sketches are numbered.
constexpr const SketchRule* kRules[] = {&kStreamingRule, &kStagingRule, &kTilingRule,
                                        &kRowsRule,      &kColumnsRule, &kMatrixRule,
                                        &kWarpgroupRule, &kPrefixRule,  &kStridedRowsRule,
                                        &kFewRowsRule,   &kScatterRule, &kScatterInMemoryRule};

// Is there a choice that meets the plan's limits? Draws mostly find one soon where there is, some
// of tiles after hundreds. A draw takes as long as a plan has holes: fewer look at one of many.
bool HasPoint(const KernelPlan& plan) {
  static constexpr size_t kMostHolesDrawn = 40'000, kMostAttempts = 1000;
  const size_t holes = std::max<size_t>(1, plan.holes().size());
  const size_t attempts = std::min(kMostAttempts, kMostHolesDrawn / holes);
  std::mt19937_64 rng(1);
  std::vector<int64_t> values;
  for (size_t attempt = 0; attempt < attempts; ++attempt) {
    plan.Draw(rng, values);
    if (plan.Check(values).ok()) return true;
  }
  return false;
}

std::vector<int64_t> DefaultOf(const KernelPlan& plan) {
  const std::vector<uint8_t> choices = plan.Default();
  std::vector<int64_t> values;
  for (size_t h = 0; h < choices.size(); ++h) values.push_back(plan.holes()[h].domain[choices[h]]);
  return values;
}
// Where terms may be of many places, nobody should compare each with all: what adds them where they
// belong comes first and supersedes the others. In a block's memory, where that is not to look at
// each term several times.
void PreferScattering(const ProgramShape& shape, const KernelShape& kernel, Plans& made) {
  constexpr int64_t kMany = 1024;
  const auto scatters = [](const Plan& p) {
    return (p.rule == &kScatterRule || p.rule == &kScatterInMemoryRule) && HasValidDefault(*p.plan);
  };
  if (std::none_of(made.begin(), made.end(), scatters) ||
      PlacesOfTerm(shape.stage(kernel.reductions[0])) < kMany) {
    return;
  }
  const auto others = std::stable_partition(made.begin(), made.end(), scatters);
  std::stable_sort(made.begin(), others, [](const Plan& a, const Plan& b) {
    return WasteOfDefault(*a.plan) < WasteOfDefault(*b.plan);
  });
  for (auto p = others; p != made.end(); ++p) p->superseded = true;
}

// Has the kernel sums of more terms than one thread should add up?
bool HasLongSums(const ProgramShape& shape, const KernelShape& kernel) {
  return std::any_of(kernel.reductions.begin(), kernel.reductions.end(), [&](int reduction) {
    const std::vector<const ScheduledStage*> together =
        shape.schedule.Together(shape.stage(reduction));
    return std::any_of(together.begin(), together.end(), [](const ScheduledStage* s) {
      return ExtentOf(s->reduce_axes) > kMostSerialTerms &&
             (s->combiner == Combiner::kSum || s->combiner == Combiner::kProd);
    });
  });
}

// Does one thread for an element read most of what it reads of a window from registers and the
// cache? A tile of a large window is not known to be better.
bool HasLargeWindows(const ProgramShape& shape, const KernelShape& kernel) {
  constexpr int64_t kLarge = 64;
  return std::any_of(kernel.reductions.begin(), kernel.reductions.end(), [&](int reduction) {
    const ScheduledStage& stage = shape.stage(reduction);
    return TapsOf(stage.body, stage.axes, stage.reduce_axes) > kLarge;
  });
}

}  // namespace

size_t CountMatrices(const std::vector<Plans>& plans) {
  return static_cast<size_t>(std::count_if(plans.begin(), plans.end(), [](const Plans& made) {
    return std::any_of(made.begin(), made.end(),
                       [](const Plan& p) { return p.rule->multiplies_matrices; });
  }));
}

bool HasValidDefault(const KernelPlan& plan) { return plan.Check(DefaultOf(plan)).ok(); }

double WasteOfDefault(const KernelPlan& plan) { return plan.Waste(DefaultOf(plan)); }

std::optional<Plan> PlanOf(const SketchRule& rule, const ProgramShape& shape,
                           const KernelShape& kernel, const Target& target) {
  std::unique_ptr<KernelPlan> plan = rule.apply(shape, kernel, target);
  if (plan == nullptr || (!rule.is_fallback && !HasPoint(*plan))) return std::nullopt;
  return Plan{.rule = &rule, .plan = std::move(plan)};
}

std::vector<Plans> PlansOf(const ProgramShape& shape, bool is_definition, const Target& target) {
  std::vector<Plans> plans;
  for (const KernelShape& kernel : shape.kernels) {
    Plans& made = plans.emplace_back();
    for (const SketchRule* rule : kRules) {
      const bool is_fused = kernel.fused || StoresRows(shape, kernel);
      if (is_fused && !rule->takes_fused_kernels) continue;
      if (!kernel.beside.empty() && !rule->takes_beside) continue;
      if (MakesParts(shape, kernel) && !rule->multiplies_matrices) continue;
      const bool has_better =
          std::any_of(made.begin(), made.end(), [](const Plan& p) { return !p.rule->is_fallback; });
      if (rule->is_last_resort && has_better) continue;
      if (auto plan = PlanOf(*rule, shape, kernel, target)) made.push_back(*std::move(plan));
    }
    PreferScattering(shape, kernel, made);
    const bool has_simple = std::any_of(made.begin(), made.end(), [](const Plan& p) {
      return !p.rule->is_fallback && HasValidDefault(*p.plan);
    });
    // A rule knows no better where nothing is reused.
    const bool reuses = std::any_of(
        kernel.reductions.begin(), kernel.reductions.end(),
        [&](int reduction) { return ReadsSeveralTensors(shape.stage(reduction).body); });
    // One thread each for a few results leaves the device idle.
    const bool has_few = std::any_of(made.begin(), made.end(),
                                     [](const Plan& p) { return p.rule == &kFewRowsRule; });
    const bool is_useless = has_simple && (has_few || HasLongSums(shape, kernel));
    const bool may_be_better = is_definition || !reuses || HasLargeWindows(shape, kernel);
    const bool keeps = may_be_better && !is_useless;
    if (keeps || made.size() < 2) continue;
    std::erase_if(made, [](const Plan& p) { return p.rule->is_fallback; });
    // The first one's default is the kernel's.
    const auto first = std::find_if(made.begin(), made.end(),
                                    [](const Plan& p) { return HasValidDefault(*p.plan); });
    if (first != made.end()) std::rotate(made.begin(), first, first + 1);
  }
  return plans;
}

}  // namespace heddle::search_space
