#include "server/fleet/jobs/fair_queue.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace heddle::server {

bool FairQueue::HasCredit(const std::string& name) const {
  auto it = credit_.find(name);
  return it != credit_.end() && it->second > 0;
}

std::string FairQueue::Next(const std::vector<std::string>& waiting) {
  const std::set<std::string> asking(waiting.begin(), waiting.end());
  for (auto it = credit_.begin(); it != credit_.end();) {
    const bool forgotten = !asking.contains(it->first) && it->second >= 0;
    it = forgotten ? credit_.erase(it) : std::next(it);
  }
  // As many rounds at once as it takes for somebody to have something left.
  double rounds = INFINITY;
  for (const std::string& name : asking) {
    const double credit = credit_[name];
    rounds = std::min(rounds, credit > 0 ? 0 : std::floor(-credit / quantum_) + 1);
  }
  for (const std::string& name : asking) credit_[name] += rounds * quantum_;
  // Around the ring, from the one whose turn it was: it goes on for as long as it has credit. A new
  // round begins behind it, so that it does not take two turns in a row.
  auto it = rounds > 0 ? asking.upper_bound(last_) : asking.lower_bound(last_);
  for (size_t looked = 0; looked <= asking.size(); ++looked, ++it) {
    if (it == asking.end()) it = asking.begin();
    if (!HasCredit(*it)) continue;
    last_ = *it;
    return last_;
  }
  return *asking.begin();
}

}  // namespace heddle::server
