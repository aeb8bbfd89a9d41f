// The clock that deadlines and durations go by, and what is told from it.
#ifndef HEDDLE_MEASURE_CLOCK_H_
#define HEDDLE_MEASURE_CLOCK_H_

#include <chrono>
#include <optional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle::measure {

// What absl::Now() would be had nobody set the system's clock since this process began: a clock
// that jumps must neither kill candidates nor keep them alive.
inline absl::Time SteadyNow() {
  auto steady = [] {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  };
  static const absl::Time origin = absl::Now() - steady();
  return origin + steady();
}

// How far apart events are on average, the last dozen counting most.
class MeanInterval {
 public:
  void Note(absl::Time now) {
    if (last_) mean_ = mean_ ? *mean_ + (now - *last_ - *mean_) / kWindow : now - *last_;
    last_ = now;
  }
  // Zero before the second event.
  absl::Duration mean() const { return mean_.value_or(absl::ZeroDuration()); }

 private:
  static constexpr int kWindow = 8;
  std::optional<absl::Time> last_;
  std::optional<absl::Duration> mean_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CLOCK_H_
