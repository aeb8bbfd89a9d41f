// Which trials teach a model, and how much each counts.
#ifndef HEDDLE_TUNER_SEARCH_PROPOSERS_TAUGHT_H_
#define HEDDLE_TUNER_SEARCH_PROPOSERS_TAUGHT_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "measure/device/outcome.h"

namespace heddle::tuner {

// How far the time of a trial is to be believed, 0 .. 1, by the quality of its measurement.
float WeightOf(const measure::TrialResult& result);

// The trials of a workload that its model learns from, as indices in order: all while they are few,
// then the newest and the fastest, so that a batch takes no longer the longer a search goes on.
inline constexpr size_t kNewestTaught = 2048, kFastestTaught = 1024;
std::vector<size_t> ChooseTaught(absl::Span<const measure::TrialResult* const> trials);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROPOSERS_TAUGHT_H_
