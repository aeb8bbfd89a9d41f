// The clock that deadlines and durations go by.
#ifndef HEDDLE_BASE_CLOCK_H_
#define HEDDLE_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle {

// What absl::Now() would be had nobody set the system's clock since this process began: a clock
// that jumps must neither kill candidates nor keep them alive.
inline absl::Time SteadyNow() {
  auto steady = [] {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  };
  static const absl::Time origin = absl::Now() - steady();
  return origin + steady();
}

}  // namespace heddle

#endif  // HEDDLE_BASE_CLOCK_H_
