#include "server/fleet/leases/lease.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "measure/judge/criteria.h"
#include "measure/run/processes/messages.h"
#include "search_space/notation/notation.h"
#include "server/db/convert.h"

namespace heddle::server {
namespace {

// What is known of a lease from one of its trials. NotFound and InvalidArgument where its job has
// ended without it, or was given up.
absl::StatusOr<LeaseEntry> LeaseOf(const LeasedTrial& trial, tuner::Records& records,
                                   const Hosts& hosts, const Devices& devices) {
  HEDDLE_ASSIGN_OR_RETURN(job, LoadJob(records, trial.job, ""));
  HEDDLE_ASSIGN_OR_RETURN(
      program, search_space::ParseWorkload(job.workloads(trial.workload).workload().text()));
  LeaseEntry lease;
  lease.id = trial.lease;
  lease.job = trial.job;
  lease.device = trial.device;
  lease.host = HostOf(trial.device);
  lease.program = std::make_shared<const search_space::TensorProgram>(std::move(program));
  const DeviceEntry* known = devices.Find(trial.device);
  const v1::Device device = known == nullptr ? v1::Device() : known->info.device();
  lease.environment = EnvironmentOf(device, job.spec().l2());
  const DeviceModels::Model* model = devices.models().Find(device.target().name());
  const search_space::Target target =
      measure::FromProto(model == nullptr ? device : model->device).target;
  lease.fastest_us = measure::FastestPlausible(*lease.program, target, lease.environment.l2) * 1e6;
  // The host's token, which the lease's session must have had.
  lease.from = {job.tenant(), hosts.TokenOf(lease.host), lease.host, JobName(trial.job)};
  lease.is_finals = trial.is_final;
  lease.expired = trial.late;
  return lease;
}

}  // namespace

bool LeaseEntry::DiedBefore(const FleetSession& now) const {
  if (host != now.host || boot_id.empty()) return false;
  if (boot_id != now.boot_id) return true;
  return instance != now.instance &&
         std::any_of(now.devices.begin(), now.devices.end(),
                     [&](const auto& registered) { return registered.second == device; });
}

absl::StatusOr<std::vector<LeaseEntry>> LoadLeases(tuner::Records& records, const Hosts& hosts,
                                                   const Devices& devices) {
  HEDDLE_ASSIGN_OR_RETURN(trials, LoadLeasedTrials(records));
  std::map<int64_t, LeaseEntry> leases;
  for (const LeasedTrial& trial : trials) {
    auto it = leases.find(trial.lease);
    if (it == leases.end()) {
      auto lease = LeaseOf(trial, records, hosts, devices);
      if (absl::IsNotFound(lease.status()) || absl::IsInvalidArgument(lease.status())) {
        LogEvent(Severity::kWarning, "late_lease_dropped",
                 {{"lease", trial.lease}, {"error", std::string(lease.status().message())}});
        continue;
      }
      HEDDLE_RETURN_IF_ERROR(lease);
      it = leases.emplace(trial.lease, *std::move(lease)).first;
    }
    it->second.open.insert(trial.trial);
    if (trial.running) it->second.running.insert(trial.trial);
  }
  std::vector<LeaseEntry> all;
  for (auto& [id, lease] : leases) all.push_back(std::move(lease));
  return all;
}

}  // namespace heddle::server
