// Which of several schedules, measured against each other, is the best.
#ifndef HEDDLE_TUNER_WINNER_H_
#define HEDDLE_TUNER_WINNER_H_

#include <cstddef>
#include <vector>

#include "measure/outcome.h"

namespace heddle::tuner {

// Slower ones than the fastest by more than this share are not ties, however wide their intervals.
inline constexpr double kTieMargin = 0.10;

struct Finalist {
  const measure::TrialResult* result;
  size_t steps;  // how many: the measure of simplicity
};

// The fastest by `time_us`, unless the confidence intervals of others within kTieMargin overlap its
// own: then the one of those with the fewest steps, the faster where these are equal. An index of
// `finalists`; those that are not OK never win; -1 without any.
int ChooseWinner(const std::vector<Finalist>& finalists);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_WINNER_H_
