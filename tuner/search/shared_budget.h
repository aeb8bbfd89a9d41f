// One budget for several workloads: each gets a part of it, the rest goes in turns to whoever is
// expected to gain most by it. Several devices may have turns at a time, each of another workload.
#ifndef HEDDLE_TUNER_SEARCH_SHARED_BUDGET_H_
#define HEDDLE_TUNER_SEARCH_SHARED_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "tuner/search/session.h"

namespace heddle::tuner {

// Share of its time that a workload may be expected to lose by as many trials as the later half of
// `session` had: as much as that half brought.
double LastImprovement(const SessionReport& session);

class SharedBudget {
 public:
  // One session of one workload, within these limits; 0 = none.
  struct Turn {
    size_t workload = 0;
    int trials = 0;
    double seconds = 0;
  };

  // `trials` and `seconds` are each workload's on average, as in SessionOptions; `weights`, one a
  // workload, say what a microsecond of each is worth. Budgets too small to be divided, or without
  // a limit, give each workload one turn.
  SharedBudget(int trials, double seconds, std::vector<double> weights);

  // Each workload's first turn, in order; then of what is left. The turn is the caller's until it
  // is reported or given back; meanwhile its workload has no other. `without`: workloads that the
  // caller does not take, as they have failed on its device. nullopt: nothing more is worth it, or
  // will be only when a turn that others have has ended.
  std::optional<Turn> Next(const std::set<size_t>& without = {});
  // How a turn ended. A workload whose session ended for another reason than its budget, and one
  // without a valid schedule, has no further turn.
  void Report(const Turn& turn, const SessionReport& session);
  // A turn that ended in an error, as if it had not been.
  void GiveBack(const Turn& turn);

 private:
  struct Workload {
    double weight = 1;
    int turns = 0;
    bool running = false;
    double expected_us = 0;  // what another turn may save, by weight
  };

  Turn Take(const Turn& turn);

  std::vector<Workload> workloads_;
  Turn turn_;  // the size of each
  bool divided_ = false;
  // Without what the turns that run may take.
  int64_t trials_left_;
  double seconds_left_;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_SHARED_BUDGET_H_
