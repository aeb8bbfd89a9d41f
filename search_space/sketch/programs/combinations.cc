#include "search_space/sketch/programs/combinations.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

constexpr size_t kMaxSketches = 12;  // of one algorithm

}  // namespace

Sketch MakeSketch(const std::vector<Plans>& plans, const std::shared_ptr<const ProgramShape>& shape,
                  const std::vector<size_t>& choice) {
  Sketch sketch;
  sketch.shape = shape;
  for (size_t k = 0; k < plans.size(); ++k) {
    const Plan& chosen = plans[k][choice[k]];
    const std::string prefix =
        plans.size() > 1 ? shape->stage(shape->kernels[k].root).name() + "." : "";
    absl::StrAppend(&sketch.name, k == 0 ? "" : "+", chosen.rule->name);
    sketch.plan_begin.push_back(sketch.holes.size());
    for (Hole hole : chosen.plan->holes()) {
      hole.name = prefix + hole.name;
      sketch.holes.push_back(std::move(hole));
    }
    sketch.plans.push_back(chosen.plan);
    sketch.superseded = sketch.superseded || chosen.superseded;
  }
  return sketch;
}

namespace {

void AddAllCombinations(std::vector<Plans> plans, const std::shared_ptr<const ProgramShape>& shape,
                        std::vector<Sketch>& sketches) {
  const auto count = [&] {
    size_t all = 1;
    for (const Plans& made : plans) all = std::min(all * made.size(), 2 * kMaxSketches);
    return all;
  };
  std::vector<size_t> choice(plans.size(), 0);
  if (count() > kMaxSketches) {
    sketches.push_back(MakeSketch(plans, shape, choice));
    while (count() >= kMaxSketches) {
      Plans& most =
          *std::max_element(plans.begin(), plans.end(),
                            [](const Plans& a, const Plans& b) { return a.size() < b.size(); });
      most.erase(most.begin());
    }
  }
  for (bool more = true; more;) {
    sketches.push_back(MakeSketch(plans, shape, choice));
    more = false;
    for (size_t k = plans.size(); k-- > 0 && !more;) {
      more = ++choice[k] < plans[k].size();
      if (!more) choice[k] = 0;
    }
  }
}

}  // namespace

void AddCombinations(const std::vector<Plans>& plans,
                     const std::shared_ptr<const ProgramShape>& shape,
                     std::vector<Sketch>& sketches) {
  if (!IsEachMade(plans)) return;
  std::vector<Plans> drawn = plans, superseded = plans;
  bool supersedes = false;
  for (size_t k = 0; k < plans.size(); ++k) {
    std::erase_if(drawn[k], [](const Plan& p) { return p.superseded; });
    if (drawn[k].empty()) drawn[k] = plans[k];
    if (drawn[k].size() == plans[k].size()) continue;
    supersedes = true;
    std::erase_if(superseded[k], [](const Plan& p) { return !p.superseded; });
  }
  AddAllCombinations(std::move(drawn), shape, sketches);
  if (supersedes) AddAllCombinations(std::move(superseded), shape, sketches);
}

std::string CompanionsIn(const Schedule& schedule) {
  std::string all;
  for (const ScheduledStage& s : schedule.stages()) {
    if (!schedule.HasCompanions(s)) continue;
    absl::StrAppend(&all, "[",
                    absl::StrJoin(schedule.Together(s), "|",
                                  [](std::string* out, const ScheduledStage* member) {
                                    out->append(member->name());
                                  }),
                    "]");
  }
  return all;
}

void KeepMatrices(bool only_last, Plans& made) {
  if (CountMatrices({made}) == 0) return;
  std::erase_if(made, [](const Plan& p) { return !p.rule->multiplies_matrices; });
  if (only_last) made.erase(made.begin(), made.end() - 1);
}

bool IsEachMade(const std::vector<Plans>& plans) {
  return !plans.empty() &&
         std::none_of(plans.begin(), plans.end(), [](const Plans& made) { return made.empty(); });
}

std::string NameOf(const Partition& partition) {
  std::string name;
  for (const auto& [what, stages] : {std::pair("apart", &partition.apart),
                                     {"stored", &partition.stored},
                                     {"merged", &partition.merged},
                                     {"kept", &partition.kept}}) {
    if (!stages->empty()) absl::StrAppend(&name, "[", what, "=", absl::StrJoin(*stages, "|"), "]");
  }
  return name;
}

std::vector<Plans> PlansOfPartition(const ProgramShape& shape, const Target& target) {
  std::vector<Plans> plans = PlansOf(shape, false, target);
  for (size_t k = 0; k < plans.size(); ++k) {
    Plans& made = plans[k];
    if (shape.kernels[k].fused) {
      for (const SketchRule* rule :
           {&kChainRule, &kRollingRule, &kWarpgroupRollingRule, &kMatrixRowPartsRule,
            &kWarpgroupRowPartsRule, &kMatrixPlacesRule, &kWarpgroupPlacesRule, &kMatrixReducedRule,
            &kWarpgroupReducedRule, &kSitesRule}) {
        if (!shape.kernels[k].beside.empty() && !rule->takes_beside) continue;
        if (auto chain = PlanOf(*rule, shape, shape.kernels[k], target)) {
          made.push_back(*std::move(chain));
        }
      }
    }
    KeepMatrices(true, made);
    const bool has_better = std::any_of(made.begin(), made.end(), [](const Plan& p) {
      return !p.rule->is_fallback && HasValidDefault(*p.plan);
    });
    const bool reduces = !shape.kernels[k].reductions.empty();
    if (has_better && reduces)
      std::erase_if(made, [](const Plan& p) { return p.rule->is_fallback; });
  }
  return plans;
}

bool HasOneKernel(const std::vector<Sketch>& sketches) {
  return std::any_of(sketches.begin(), sketches.end(),
                     [](const Sketch& s) { return s.plans.size() == 1; });
}

void AddAsOften(std::vector<Sketch> added, std::vector<Sketch>& sketches) {
  size_t others = 0;
  for (const Sketch& sketch : sketches) others += sketch.superseded ? 0 : sketch.draws;
  for (Sketch& sketch : added) {
    sketch.draws = std::max<size_t>(1, others / added.size());
    sketches.push_back(std::move(sketch));
  }
}

size_t DrawsBeside(const std::vector<Sketch>& sketches) {
  const auto others = std::count_if(sketches.begin() + 1, sketches.end(),
                                    [](const Sketch& s) { return !s.superseded; });
  return std::max<size_t>(1, static_cast<size_t>(others) / 2);
}

void Prepend(const std::vector<Step>& first, absl::Span<Sketch> sketches) {
  absl::flat_hash_map<const ProgramShape*, std::shared_ptr<const ProgramShape>> shapes;
  for (Sketch& sketch : sketches) {
    std::shared_ptr<const ProgramShape>& whole = shapes[sketch.shape.get()];
    if (whole == nullptr) {
      ProgramShape longer = *sketch.shape;
      longer.steps.insert(longer.steps.begin(), first.begin(), first.end());
      whole = std::make_shared<const ProgramShape>(std::move(longer));
    }
    sketch.shape = whole;
  }
}

}  // namespace heddle::search_space
