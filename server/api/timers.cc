#include "server/api/timers.h"

#include <vector>

namespace heddle::server {

Timers::Key Timers::Add(SteadyTime when, std::function<void()> then) {
  absl::MutexLock lock(&mutex_);
  const Key key = {when, next_++};
  waiting_.emplace(key, std::move(then));
  return key;
}

void Timers::Remove(const Key& key) {
  absl::MutexLock lock(&mutex_);
  waiting_.erase(key);
}

void Timers::Run(SteadyTime now) {
  std::vector<std::function<void()>> due;
  {
    absl::MutexLock lock(&mutex_);
    while (!waiting_.empty() && waiting_.begin()->first.first <= now) {
      due.push_back(std::move(waiting_.extract(waiting_.begin()).mapped()));
    }
  }
  for (const auto& then : due) then();
}

}  // namespace heddle::server
