// Which jobs are searched, and on devices of which model: fair among tenants, and looked at only
// when something has changed.
#ifndef HEDDLE_SERVER_FLEET_JOBS_JOB_QUEUE_H_
#define HEDDLE_SERVER_FLEET_JOBS_JOB_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "server/fleet/devices/devices.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "server/fleet/jobs/device_budget.h"
#include "server/fleet/jobs/fair_queue.h"
#include "server/fleet/jobs/jobs.h"
#include "server/metrics/metrics.h"

namespace heddle::server {

// Jobs without a searcher, which wait for a device that matches, or for one of the searchers; and
// those that have one.
class JobQueue {
 public:
  // A job that has a searcher, for as long as its thread runs.
  struct Searching {
    std::string tenant, model;
    SteadyTime slice_begun;
  };

  JobQueue(const FleetOptions& options, Outbox& outbox, Metrics& metrics, Jobs& jobs,
           Devices& devices, DeviceBudget& budget)
      : options_(options),
        outbox_(outbox),
        metrics_(metrics),
        jobs_(jobs),
        devices_(devices),
        budget_(budget),
        share_(absl::ToDoubleSeconds(options.slice)) {}

  // A job that has no searcher waits for one, or for a device; nothing where it waits already, or
  // is to end.
  void Add(ActiveJob& job);
  // It waits no longer.
  void Remove(int64_t job);
  // Holds jobs that wait for a device against those that have come, as often as is allowed.
  void Match();
  // Gives searchers that are free to jobs that are ready.
  void Start();
  // A job's search has ended: its searcher is free.
  void End(int64_t job);
  // Jobs that have had their time let others that wait have their searcher. To be called now and
  // then: what tenants may use changes with time.
  void EndSlices();

  const std::map<int64_t, Searching>& searching() const { return searching_; }
  // Devices that can work on a job that is bound to a model.
  int UsableDevices(const ActiveJob& job);
  // How often a job was held against a device or a model.
  int64_t matches() const { return matches_; }

 private:
  // What a job waits for that no device matches: its key in parked_.
  static std::string WaitsFor(const ActiveJob& job);
  std::optional<std::string> ChooseModel(const ActiveJob& job);
  void Park(ActiveJob& job);
  // Those that have jobs ready and may have another one searched.
  std::vector<std::string> ReadyTenants() const;
  void StartJob(ActiveJob& job, const std::string& model);

  const FleetOptions& options_;
  Outbox& outbox_;
  Metrics& metrics_;
  Jobs& jobs_;
  Devices& devices_;
  DeviceBudget& budget_;
  std::map<int64_t, Searching> searching_;
  std::map<std::string, int> searching_on_;  // jobs by model
  // Jobs that no device matches, by what they wait for, and where each is in it.
  std::map<std::string, std::set<int64_t>> parked_;
  std::map<int64_t, std::string> parked_at_;
  // Jobs that wait for a searcher, by tenant, and the tenant of each.
  std::map<std::string, std::deque<int64_t>> ready_;
  std::map<int64_t, std::string> ready_of_;
  bool may_start_ = false;                     // something has changed since Start
  std::map<std::string, SteadyTime> matched_;  // models, last
  FairQueue share_;
  int64_t matches_ = 0;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_JOBS_JOB_QUEUE_H_
