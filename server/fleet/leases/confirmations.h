// No host decides alone what is served as validated: what one has found another one measures.
#ifndef HEDDLE_SERVER_FLEET_LEASES_CONFIRMATIONS_H_
#define HEDDLE_SERVER_FLEET_LEASES_CONFIRMATIONS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/v1/common.pb.h"
#include "server/db/job_store.h"
#include "server/db/trial_store.h"
#include "server/db/trust/confirmations.h"

namespace heddle::server {

// Hosts that are asked for their word on one schedule.
inline constexpr int kMaxConfirmations = 3;
// For a schedule and the default one.
inline constexpr double kConfirmationSeconds = 10;

// One of the schedules that a lease of finals measured.
struct Finalist {
  TrialRow row;
  double time_us = 0;  // 0 = it failed
  bool is_default = false;
};

// A best that another host is to measure, with the default schedule beside it.
struct Confirmation {
  int64_t job = 0;
  int workload = 0;
  std::string tenant;
  Workload program;
  v1::L2Policy l2 = v1::L2_POLICY_UNSPECIFIED;
  uint64_t seed = 1;
  std::vector<TrialRow> rows;  // its own, then the default schedule's where that is known
  Measured found;              // in which the default's time is that of the same lease
  std::string default_point;
  std::map<std::string, int64_t> measured;  // by hosts so far, with their tokens
  int attempts = 0;
  int64_t number = 0;  // grows with each best that is asked for

  // What `finals` say of its schedules; nullopt: they have nothing of the best.
  std::optional<Measured> MeasuredBy(const std::vector<Finalist>& finals) const;
  void AddRow(TrialRow row);
  // Has the default schedule measured beside it, unless it is, or is the best itself.
  void AddDefault(const TrialRow& row);
};

// Those that wait for a device, by model.
class Confirmations {
 public:
  // Of a workload the newest best waits, whichever of them was asked for last, or came back; of a
  // model so many, and the oldest are given up: they are found again when they are tuned again.
  void Ask(const std::string& model, Confirmation confirmation);
  // The next one that the host's word on is another one's.
  std::optional<Confirmation> Take(const std::string& model, const std::string& host,
                                   int64_t token);
  // The default schedule of a workload has been measured after its best: that of `row`.
  void AddDefault(const std::string& model, const Workload& program, v1::L2Policy l2,
                  const TrialRow& row);
  bool AnyWait(const std::string& model) const;
  int64_t NextNumber() { return next_number_++; }
  // How often one was held against a host.
  int64_t matches() const { return matches_; }

 private:
  struct Waiting {
    Confirmation confirmation;
    int64_t place = 0;  // grows along the queue
  };
  struct Model {
    std::deque<Waiting> waiting;
    // By host and token the place behind the last one that was looked at for it in vain. Who has
    // measured one that waits does not change, so that none is looked at twice for the same host.
    std::map<std::pair<std::string, int64_t>, int64_t> looked_at;
    int64_t next_place = 0;
  };

  std::map<std::string, Model> models_;
  int64_t next_number_ = 1;
  int64_t matches_ = 0;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_LEASES_CONFIRMATIONS_H_
