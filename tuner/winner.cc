#include "tuner/winner.h"

#include <tuple>

namespace heddle::tuner {

int ChooseWinner(const std::vector<Finalist>& finalists) {
  int count = static_cast<int>(finalists.size());
  auto ok = [&](int i) { return finalists[i].result->outcome == measure::Outcome::kOk; };
  auto time = [&](int i) { return finalists[i].result->time_us; };
  int fastest = -1;
  for (int i = 0; i < count; ++i) {
    if (ok(i) && (fastest < 0 || time(i) < time(fastest))) fastest = i;
  }
  int winner = fastest;
  for (int i = 0; i < count; ++i) {
    if (!ok(i) || time(i) > time(fastest) * (1 + kTieMargin)) continue;
    if (finalists[i].result->ci_low_us > finalists[fastest].result->ci_high_us) continue;
    if (std::tuple(finalists[i].steps, time(i)) <
        std::tuple(finalists[winner].steps, time(winner))) {
      winner = i;
    }
  }
  return winner;
}

}  // namespace heddle::tuner
