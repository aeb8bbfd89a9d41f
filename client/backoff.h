// How long to wait before the next attempt.
#ifndef HEDDLE_CLIENT_BACKOFF_H_
#define HEDDLE_CLIENT_BACKOFF_H_

#include <algorithm>
#include <random>

#include "absl/time/time.h"

namespace heddle::client {

// Doubles from `first` to `last`; each wait is drawn from the upper half, so that many callers of
// one server that went away do not come back at once.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration last)
      : first_(first), last_(last), next_(first), random_(std::random_device{}()) {}

  absl::Duration Next() {
    const absl::Duration wait = next_ * std::uniform_real_distribution<>(0.5, 1.0)(random_);
    next_ = std::min(last_, 2 * next_);
    return wait;
  }
  void Reset() { next_ = first_; }

 private:
  absl::Duration first_, last_, next_;
  std::minstd_rand random_;
};

}  // namespace heddle::client

#endif  // HEDDLE_CLIENT_BACKOFF_H_
