#include "tuner/search/explain.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_split.h"
#include "base/status.h"
#include "search_space/schedule/step.h"
#include "tuner/model/analytic/kernel_cost.h"
#include "tuner/search/proposers/screen.h"

namespace heddle::tuner {

absl::StatusOr<Analysis> Analyse(const std::shared_ptr<const search_space::TensorProgram>& program,
                                 const std::vector<search_space::Step>& steps,
                                 const search_space::Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(lowered, search_space::LowerSteps(program, steps));
  HEDDLE_ASSIGN_OR_RETURN(features, FeaturesOf(lowered, target));
  return Analysis{std::move(features), TermsOf(lowered, target)};
}

absl::Span<const ComparedFeature> ComparedFeatures() {
  static constexpr ComparedFeature kRows[] = {
      {"kernels", "kernels"},
      {"blocks", "blocks"},
      {"threads a block", "threads"},
      {"shared bytes a block", "shared_bytes"},
      {"registers, estimated", "registers", true},
      {"occupancy", "occupancy", true},
      {"waves", "waves"},
      {"idle share of last wave", "tail"},
      {"requested bytes", "requested_bytes"},
      {"bytes from L2", "l2_bytes", true},
      {"bytes from memory", "dram_bytes", true},
      {"load efficiency", "load_efficiency", true},
      {"bank conflicts, loads", "shared_load_conflicts", true},
      {"multiply-adds a step", "fma_per_step"},
      {"pipeline depth", "pipeline_depth"},
      {"integer per multiply-add", "integer_per_fma"},
      {"analytic time, us", "analytic_us"},
  };
  return kRows;
}

std::vector<std::pair<double, const char*>> LargestTerms(const Terms& terms, bool processor) {
  std::vector<std::pair<double, const char*>> largest;
  for (const TermInfo& term : TermTable()) {
    const char* what = term.On(processor).what;
    if (what != nullptr) largest.emplace_back(terms[term.term], what);
  }
  std::sort(largest.rbegin(), largest.rend());
  return largest;
}

absl::StatusOr<Effects> FeatureEffects(const CostModel& model, const FeatureVector& best,
                                       const FeatureVector& other) {
  HEDDLE_ASSIGN_OR_RETURN(of_best, model.Contributions(best));
  HEDDLE_ASSIGN_OR_RETURN(of_other, model.Contributions(other));
  Effects effects;
  const auto table = FeatureTable();
  for (size_t i = 0; i < table.size(); ++i) {
    effects.emplace_back(of_best[i] - of_other[i], table[i].name);
  }
  std::stable_sort(effects.begin(), effects.end(), [](const auto& x, const auto& y) {
    return std::abs(x.first) > std::abs(y.first);
  });
  return effects;
}

absl::StatusOr<Effects> HoleEffects(const CostModel& model, const search_space::SearchSpace& space,
                                    const std::string& text, const FeatureVector& best) {
  constexpr int kMutants = 400;
  auto point = space.Parse(text);
  if (!point.ok()) return Effects{};
  search_space::Rng rng(1);
  std::vector<search_space::Point> mutants;
  std::vector<size_t> holes;
  for (int i = 0; i < kMutants; ++i) {
    auto mutant = space.Mutate(*point, rng);
    if (!mutant || std::find(mutants.begin(), mutants.end(), *mutant) != mutants.end()) continue;
    std::vector<size_t> changed;
    for (size_t h = 0; h < point->choices.size(); ++h) {
      if (mutant->choices[h] != point->choices[h]) changed.push_back(h);
    }
    if (changed.size() != 1) continue;
    holes.push_back(changed[0]);
    mutants.push_back(*std::move(mutant));
  }
  Screen screen(space, 1);
  const auto features = screen.Features(mutants);
  HEDDLE_ASSIGN_OR_RETURN(own, model.Score({&best, 1}));
  std::map<size_t, std::pair<double, int>> falls;
  for (size_t i = 0; i < mutants.size(); ++i) {
    if (features[i]->empty()) continue;
    HEDDLE_ASSIGN_OR_RETURN(score, model.Score({features[i], 1}));
    falls[holes[i]].first += own[0] - score[0];
    ++falls[holes[i]].second;
  }
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Effects effects;
  for (const auto& [hole, fall] : falls) {
    effects.emplace_back(fall.first / fall.second, words[hole + 1]);
  }
  std::stable_sort(effects.rbegin(), effects.rend());
  return effects;
}

}  // namespace heddle::tuner
