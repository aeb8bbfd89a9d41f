#include "tuner/search/proposers/taught.h"

#include <algorithm>
#include <utility>

namespace heddle::tuner {

using measure::Outcome;
using measure::TrialResult;

float WeightOf(const TrialResult& result) {
  // One sample only, or an interval wider than asked for: right about the magnitude.
  constexpr float kRough = 0.5F;
  return result.screened_out || result.noisy ? kRough : 1.0F;
}

std::vector<size_t> ChooseTaught(absl::Span<const TrialResult* const> trials) {
  std::vector<size_t> taught, older;
  const size_t newest = trials.size() - std::min(trials.size(), kNewestTaught);
  for (size_t i = 0; i < newest; ++i) {
    if (trials[i]->outcome == Outcome::kOk) older.push_back(i);
  }
  const size_t fastest = std::min(older.size(), kFastestTaught);
  std::partial_sort(older.begin(), older.begin() + static_cast<ptrdiff_t>(fastest), older.end(),
                    [&](size_t a, size_t b) {
                      return std::pair(trials[a]->time_us, a) < std::pair(trials[b]->time_us, b);
                    });
  taught.assign(older.begin(), older.begin() + static_cast<ptrdiff_t>(fastest));
  std::sort(taught.begin(), taught.end());
  for (size_t i = newest; i < trials.size(); ++i) taught.push_back(i);
  return taught;
}

}  // namespace heddle::tuner
