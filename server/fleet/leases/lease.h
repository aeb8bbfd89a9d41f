// A lease: candidates of one workload that a device may measure until a time.
#ifndef HEDDLE_SERVER_FLEET_LEASES_LEASE_H_
#define HEDDLE_SERVER_FLEET_LEASES_LEASE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/db/job_store.h"
#include "server/db/trial_store.h"
#include "server/fleet/devices/devices.h"
#include "server/fleet/devices/hosts.h"
#include "server/fleet/leases/confirmations.h"
#include "tuner/records/records.h"

namespace heddle::server {

struct LeaseEntry {
  int64_t id = 0, job = 0;
  std::string tenant;
  std::string host, device;
  Workload program;
  tuner::Environment environment;
  double fastest_us = 0;  // measure::FastestPlausible: what is faster is not believed
  tuner::Provenance from;
  std::set<int64_t> open;  // candidates without a result
  SteadyTime last_seen;
  bool expired = false, revoked = false;
  // Of the daemon that has it, and what it ran at its last heartbeat.
  std::string boot_id, instance;
  std::set<int64_t> running;

  // What it costs.
  SteadyTime begun;
  int count = 0;         // of candidates
  double charged_s = 0;  // to the tenant in advance
  bool settled = false;

  // Where it is of finals: which of them is the default schedule, what has come of them, and the
  // steps of what is served since.
  bool is_finals = false;
  std::string default_point;  // of the workload
  int64_t default_trial = 0;
  std::vector<Finalist> finals;
  std::string best;
  int confirms = 0;  // attempts so far, where it is to confirm a best, which is:
  std::shared_ptr<const Confirmation> confirmation;

  // Whether it ends with its job: another host's best is confirmed all the same.
  bool IsOf(int64_t of_job) const { return job == of_job && confirms == 0; }
  // Whether the daemon that had it is known to have ended: its host has booted again, or another
  // process has the device.
  bool DiedBefore(const FleetSession& now) const;
};

// Those of the database that may still be reported, as if they had not been heard of.
absl::StatusOr<std::vector<LeaseEntry>> LoadLeases(tuner::Records& records, const Hosts& hosts,
                                                   const Devices& devices);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_LEASES_LEASE_H_
