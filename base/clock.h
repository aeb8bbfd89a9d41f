// The clock that deadlines, budgets and waits go by: nobody can set it. The system's clock, which
// jumps, is for what is shown and stored (absl::Time, absl::Now).
#ifndef HEDDLE_BASE_CLOCK_H_
#define HEDDLE_BASE_CLOCK_H_

#include <chrono>
#include <compare>

#include "absl/time/time.h"

namespace heddle {

// A moment of that clock, which means nothing in another boot of the machine. It neither converts
// to the system's time nor compares with it, so that a deadline of one clock is never looked at
// with the other. Waits that take a moment or a span from abseil's synchronisation go by the
// system's clock: poll, condition variables of std and StopSignal do not.
class SteadyTime {
 public:
  SteadyTime() = default;  // the clock's zero, which is in the past
  static SteadyTime InfiniteFuture() { return SteadyTime(absl::InfiniteDuration()); }
  static SteadyTime InfinitePast() { return SteadyTime(-absl::InfiniteDuration()); }

  friend SteadyTime operator+(SteadyTime t, absl::Duration d) { return SteadyTime(t.since_ + d); }
  friend SteadyTime operator-(SteadyTime t, absl::Duration d) { return SteadyTime(t.since_ - d); }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) { return a.since_ - b.since_; }
  friend bool operator==(SteadyTime a, SteadyTime b) { return a.since_ == b.since_; }
  friend std::weak_ordering operator<=>(SteadyTime a, SteadyTime b) {
    if (a == b) return std::weak_ordering::equivalent;
    return a.since_ < b.since_ ? std::weak_ordering::less : std::weak_ordering::greater;
  }

 private:
  explicit SteadyTime(absl::Duration since) : since_(since) {}
  absl::Duration since_;
};

inline SteadyTime SteadyNow() {
  return SteadyTime() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// From then until now, in seconds.
inline double SecondsSince(SteadyTime then) { return absl::ToDoubleSeconds(SteadyNow() - then); }

}  // namespace heddle

#endif  // HEDDLE_BASE_CLOCK_H_
