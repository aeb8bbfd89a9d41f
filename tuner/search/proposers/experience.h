// What the trials of other workloads on a device teach before a workload's own first trial.
#ifndef HEDDLE_TUNER_SEARCH_PROPOSERS_EXPERIENCE_H_
#define HEDDLE_TUNER_SEARCH_PROPOSERS_EXPERIENCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/cost_model.h"
#include "tuner/records/records.h"

namespace heddle::tuner {

struct Experience {
  std::shared_ptr<const CostModel> model;  // null: there is nothing to learn from
  // The best of the nearest workloads, nearest first; of this one, others' word comes first.
  std::vector<search_space::Point> neighbours;
  std::string note;  // where the model comes from, for the user
};

// Loads the stored model of the environment's device and policy. Where there is none, it knows
// other features, is damaged, or far fewer trials than there are now, a new one is trained and
// stored. Errors are the database's; one that cannot be written to is only read.
absl::StatusOr<Experience> Recall(Records& records, const Environment& environment,
                                  const search_space::SearchSpace& space, int threads);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROPOSERS_EXPERIENCE_H_
