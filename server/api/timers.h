// What is to happen later by the steady clock. gRPC's alarms wait by the system's, which jumps.
#ifndef HEDDLE_SERVER_API_TIMERS_H_
#define HEDDLE_SERVER_API_TIMERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace heddle::server {

// Thread-safe.
class Timers {
 public:
  using Key = std::pair<SteadyTime, int64_t>;

  // `then` is called once, by the Run that comes after `when`.
  Key Add(SteadyTime when, std::function<void()> then);
  // It is not called any more, unless the Run that calls it has begun.
  void Remove(const Key& key);
  // Calls what is due, one after the other.
  void Run(SteadyTime now);

 private:
  absl::Mutex mutex_;
  std::map<Key, std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_TIMERS_H_
