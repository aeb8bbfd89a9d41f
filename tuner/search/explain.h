// Why one schedule is faster than another: what each is held back by, and what the cost model has
// learnt to value.
#ifndef HEDDLE_TUNER_SEARCH_EXPLAIN_H_
#define HEDDLE_TUNER_SEARCH_EXPLAIN_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/analytic/terms.h"
#include "tuner/model/cost_model.h"
#include "tuner/model/features.h"

namespace heddle::tuner {

// What is known of a schedule without running it.
struct Analysis {
  FeatureVector features;
  Terms terms;
  // The feature of that name.
  double operator[](const char* name) const {
    return features[static_cast<size_t>(FeatureIndex(name))];
  }
};
absl::StatusOr<Analysis> Analyse(const std::shared_ptr<const search_space::TensorProgram>& program,
                                 const std::vector<search_space::Step>& steps,
                                 const search_space::Target& target);

// What people compare schedules by: what it is, the feature that has it, whether only a GPU does.
struct ComparedFeature {
  const char* what;
  const char* feature;
  bool gpu_only = false;
};
absl::Span<const ComparedFeature> ComparedFeatures();

// The terms that hold a kernel back, microseconds and what they are on such a device, the largest
// first.
std::vector<std::pair<double, const char*>> LargestTerms(const Terms& terms, bool processor);

// Of names, by how much each moves the model's score: log-odds of being the faster one.
using Effects = std::vector<std::pair<double, std::string>>;
// Features by what they add to `best`'s score beyond `other`'s, the largest, of either sign, first.
absl::StatusOr<Effects> FeatureEffects(const CostModel& model, const FeatureVector& best,
                                       const FeatureVector& other);
// The choices of a point ("hole=value") by how much its score falls, on average over some hundred
// mutations, when only that one is made otherwise; the largest fall first. Empty where `point`,
// whose features `best` has, is none of the space: made by hand, or of an earlier version.
absl::StatusOr<Effects> HoleEffects(const CostModel& model, const search_space::SearchSpace& space,
                                    const std::string& point, const FeatureVector& best);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_EXPLAIN_H_
