// The state as a whole: what it takes up at its start, and what time brings.
#include "server/fleet/fleet_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "measure/judge/criteria.h"
#include "measure/run/messages.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "server/db/convert.h"
#include "server/db/fleet_store.h"

namespace heddle::server {
namespace {

constexpr absl::Duration kPruneEvery = absl::Hours(1);
// Jobs, so that other writes do not wait: a job may have 100,000 trials.
constexpr int kPrunedAtOnce = 4;
// What a killed server forgets of the time that its searches and devices took.
constexpr absl::Duration kBookEvery = absl::Seconds(5);
constexpr absl::Duration kSweepEvery = absl::Seconds(1);
// Seconds of devices that a tenant gets before the next one's turn.
constexpr double kLeaseQuantum = 4;

}  // namespace

FleetState::FleetState(Metrics& metrics, FleetOptions options)
    : metrics_(metrics),
      options_(std::move(options)),
      searcher_share_(absl::ToDoubleSeconds(options_.slice)),
      lease_share_(kLeaseQuantum) {}

void FleetState::Drain() {
  draining_ = true;
  for (auto& [id, job] : jobs_) job.stop = true;
  ExpireWaiters();
}

// ---------------------------------------------------------------------------------------- recovery

absl::Status FleetState::Recover(tuner::Records& records) {
  HEDDLE_ASSIGN_OR_RETURN(epoch, NextEpoch(records));
  HEDDLE_ASSIGN_OR_RETURN(trial, LargestTrial(records));
  HEDDLE_RETURN_IF_ERROR(LoadFleet(records));
  const int64_t today = absl::ToInt64Hours(Now() - absl::UnixEpoch()) / 24;
  HEDDLE_ASSIGN_OR_RETURN(used, LoadDeviceTime(records, today));
  HEDDLE_ASSIGN_OR_RETURN(jobs, LoadOpenJobs(records));
  epoch_ = epoch;
  recovered_ = SteadyNow();
  next_trial_ = trial + 1;
  next_lease_ = (epoch_ << 32) + 1;  // never one of an earlier epoch
  day_ = today;
  for (const DeviceTime& time : used) used_s_[time.tenant] = time.seconds;
  if (!options_.own_host.empty()) {
    v1::FleetHost own;
    own.set_host_uuid(options_.own_host);
    own.set_trusted(true);
    HEDDLE_RETURN_IF_ERROR(SaveHost(records, own));
    hosts_[options_.own_host] = {0, true, false, own};
  }
  for (const v1::Job& job : jobs) {
    // Only a job whose specification cannot be read has an error while it is open.
    absl::Status s =
        job.error().empty() ? RecoverJob(job, records) : absl::InvalidArgumentError(job.error());
    if (absl::IsInvalidArgument(s)) s = GiveUp(job, std::string(s.message()), records);
    if (!s.ok()) return s;
  }
  HEDDLE_RETURN_IF_ERROR(PruneLateTrials(records, Now() - kLateResults));
  return RecoverLeases(records);
}

void FleetState::Recovered() {
  for (auto& [id, job] : jobs_) FinishCancelling(job);
}

absl::Status FleetState::LoadFleet(tuner::Records& records) {
  HEDDLE_ASSIGN_OR_RETURN(devices, LoadDevices(records));
  HEDDLE_ASSIGN_OR_RETURN(pins, LoadPins(records));
  HEDDLE_ASSIGN_OR_RETURN(hosts, LoadHosts(records));
  models_ = DeviceModels();
  hosts_.clear();
  devices_.clear();
  versions_.clear();
  for (const v1::Device& pin : pins) models_.Pin(pin);
  for (const v1::FleetHost& host : hosts) {
    hosts_[host.host_uuid()] = {host.token(), host.trusted(), host.released(), host};
  }
  for (v1::FleetDevice& device : devices) {
    const std::string id = device.id();
    models_.Learn(device.device(), false);
    CountVersions(device.device(), 1);
    devices_[id].info = std::move(device);
  }
  return absl::OkStatus();
}

absl::Status FleetState::GiveUp(const v1::Job& job, const std::string& why,
                                tuner::Records& records) {
  const std::string error =
      absl::StrCat("this version of heddle cannot go on with the job: ", why, "; submit it again");
  LogEvent(Severity::kError, "job_given_up",
           {{"job", job.name()}, {"tenant", job.tenant()}, {"error", error}});
  return SetState(records, JobId(job.name()), v1::Job::STATE_FAILED,
                  v1::Job::STOP_REASON_UNSPECIFIED, error, "", Now())
      .status();
}

absl::Status FleetState::RecoverJob(const v1::Job& message, tuner::Records& records) {
  ActiveJob job;
  job.id = JobId(message.name());
  job.tenant = message.tenant();
  job.spec = message.spec();
  job.state = message.state();
  job.created = FromProto(message.create_time());
  if (job.spec.has_expire_time()) job.expires = FromProto(job.spec.expire_time());
  job.last_usable = SteadyNow();
  job.device.mutable_target()->set_name(message.device_model());
  auto restarts = LoadRestarts(records, job.id);
  if (!restarts.ok()) return restarts.status();
  job.restarts = static_cast<int>(*restarts);
  auto uses = LoadUse(records, job.id);
  if (!uses.ok()) return uses.status();
  job.uses = *std::move(uses);
  for (const WorkloadUse& use : job.uses) {
    auto program = search_space::ParseWorkload(use.text);
    if (!program.ok()) return program.status();
    job.workloads.push_back(
        std::make_shared<const search_space::TensorProgram>(*std::move(program)));
  }
  if (job.state == v1::Job::STATE_CANCELLING) {
    job.cancelling = job.stop = true;
  } else if (job.state != v1::Job::STATE_QUEUED) {
    auto seq = SetState(records, job.id, v1::Job::STATE_QUEUED, v1::Job::STOP_REASON_UNSPECIFIED,
                        "", "", Now());
    if (!seq.ok()) return seq.status();
    job.state = v1::Job::STATE_QUEUED;
  }
  auto trials = LoadOpenTrials(records, job.id);
  if (!trials.ok()) return trials.status();
  for (TrialRow& row : *trials) {
    const bool leased = row.state == v1::Trial::STATE_LEASED;
    if (!leased && (row.is_final || job.cancelling)) {
      if (absl::Status s = DropTrial(records, row.id); !s.ok()) return s;
      continue;
    }
    if (!leased) job.queue.push_back(row.id);
    job.candidates[row.id].row = std::move(row);
  }
  LogEvent(Severity::kInfo, "job_recovered", {{"job", message.name()}, {"tenant", job.tenant}});
  const int64_t id = job.id;
  Enqueue(jobs_.emplace(id, std::move(job)).first->second);
  return absl::OkStatus();
}

absl::Status FleetState::RecoverLeases(tuner::Records& records) {
  auto trials = LoadLeasedTrials(records);
  if (!trials.ok()) return trials.status();
  for (const LeasedTrial& trial : *trials) {
    auto [it, added] = leases_.try_emplace(trial.lease);
    LeaseEntry& lease = it->second;
    lease.open.insert(trial.trial);
    if (trial.running) lease.running.insert(trial.trial);
    if (!added) continue;
    auto job = LoadJob(records, trial.job, "");
    auto program =
        job.ok() ? search_space::ParseWorkload(job->workloads(trial.workload).workload().text())
                 : job.status();
    // The job has ended without it, or was given up.
    if (absl::IsNotFound(program.status()) || absl::IsInvalidArgument(program.status())) {
      LogEvent(Severity::kWarning, "late_lease_dropped",
               {{"lease", trial.lease}, {"error", std::string(program.status().message())}});
      leases_.erase(it);
      continue;
    }
    if (!program.ok()) return program.status();
    lease.id = trial.lease;
    lease.job = trial.job;
    lease.device = trial.device;
    lease.host = HostOf(trial.device);
    lease.program = std::make_shared<const search_space::TensorProgram>(*std::move(program));
    const v1::Device& device = devices_[trial.device].info.device();
    lease.environment = EnvironmentOf(device, job->spec().l2());
    const DeviceModels::Model* model = models_.Find(device.target().name());
    const search_space::Target target =
        measure::FromProto(model == nullptr ? device : model->device).target;
    lease.fastest_us =
        measure::FastestPlausible(*lease.program, target, lease.environment.l2) * 1e6;
    // The host's, which the lease's session must have had.
    const auto host = hosts_.find(lease.host);
    lease.from = {job->tenant(), host == hosts_.end() ? 0 : host->second.token, lease.host,
                  JobName(trial.job)};
    lease.is_finals = trial.is_final;
    lease.expired = trial.late;
    lease.last_seen = SteadyNow();
  }
  return absl::OkStatus();
}

// -------------------------------------------------------------------------------------------- time

void FleetState::UpdateGauges() {
  std::map<v1::Job::State, int> jobs;
  for (v1::Job::State state : {v1::Job::STATE_QUEUED, v1::Job::STATE_RUNNING,
                               v1::Job::STATE_WAITING_DEVICE, v1::Job::STATE_CANCELLING}) {
    jobs[state] = 0;
  }
  size_t queued = 0;
  for (const auto& [id, job] : jobs_) {
    ++jobs[job.state];
    queued += job.queue.size();
  }
  for (const auto& [state, count] : jobs) metrics_.SetJobs(WordOf(state), count);
  metrics_.ready_queue.Set(static_cast<double>(queued));
  metrics_.searchers.Set(searchers_);
  int busy = 0, idle = 0, gone = 0;
  for (const auto& [id, device] : devices_) {
    if (!device.usable) {
      ++gone;
    } else {
      ++(device.info.worker().state() == v1::WorkerStatus::STATE_BUSY ? busy : idle);
    }
  }
  metrics_.SetDevices("busy", busy);
  metrics_.SetDevices("idle", idle);
  metrics_.SetDevices("unusable", gone);
}

void FleetState::Sweep() {
  const SteadyTime now = SteadyNow();
  std::set<std::string> silent;
  for (const auto& [id, session] : sessions_) {
    if (now - session.last_seen > kLateResults) silent.insert(id);
  }
  for (const std::string& id : silent) EndSession(id);
  for (auto& [key, device] : devices_) {
    if (!device.info.id().empty()) Refresh(device);
  }
  for (auto& [model, use] : uses_) {
    if (!use.came.empty() && now - use.matched >= options_.match_every) MatchParked(model);
  }
  for (auto& [id, job] : jobs_) {
    if (Now() > job.expires && !job.cancelling && !job.ending) Cancel(job, "expired");
    if (!job.searching || job.stop) continue;
    if (now - job.booked >= kBookEvery) BookTime(job);
    job.usable = UsableDevices(job);
    if (job.usable > 0) job.last_usable = now;
    if (now - job.last_usable > options_.lease) {
      // The searcher ends; another goes on from what is stored when there is a device.
      job.stop = true;
      SetJobState(job, v1::Job::STATE_WAITING_DEVICE);
    }
  }
  EndSlices();
  StartJobs();
  if (now - booked_ >= kBookEvery) {
    booked_ = now;
    BookDeviceTime();
  }
  if (now - pruned_ >= kPruneEvery) Prune();
  UpdateGauges();
}

void FleetState::Prune() {
  pruned_ = SteadyNow();
  std::vector<std::string> forgotten;
  for (const auto& [id, device] : devices_) {
    // What an administrator has taken out of service stays known as that. Just after a start
    // daemons are still to come back.
    if (id.empty() || !device.session.empty() || SteadyNow() - recovered_ < kPruneEvery) continue;
    if (device.info.state() == v1::FleetDevice::STATE_DRAINING) continue;
    const bool old = Now() - FromProto(device.info.last_seen_time()) > options_.keep_devices;
    if (old) forgotten.push_back(id);
  }
  for (const std::string& id : forgotten) {
    CountVersions(devices_[id].info.device(), -1);
    devices_.erase(id);
  }
  auto jobs = std::make_shared<int>(0);
  Write(
      [=, this, now = Now()](tuner::Records& records) -> absl::Status {
        absl::Status status = PruneRequests(records, now - options_.remember_requests);
        status.Update(PruneLateTrials(records, now - kLateResults));
        for (const std::string& id : forgotten) status.Update(DeleteDevice(records, id));
        // A request that is sent again finds its job.
        auto pruned = PruneJobs(
            records, now - std::max(options_.keep_jobs, options_.remember_requests), kPrunedAtOnce);
        status.Update(pruned.status());
        if (pruned.ok()) *jobs = *pruned;
        return status;
      },
      [=, this](const absl::Status& status) {
        if (!status.ok() || *jobs < kPrunedAtOnce) return;
        pruned_ = SteadyTime::InfinitePast();  // there may be more: with the next sweep
      },
      Persistence::kOnce);
}

void FleetState::Tick() {
  ExpireLeases();
  ExpireWaiters();
  if (SteadyNow() - swept_ < kSweepEvery) return;
  swept_ = SteadyNow();
  Sweep();
}

}  // namespace heddle::server
