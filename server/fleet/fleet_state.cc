#include "server/fleet/fleet_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "measure/codegen/codegen.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/db/fleet_store.h"

namespace heddle::server {
namespace {

constexpr absl::Duration kPruneEvery = absl::Hours(1);
// Jobs, so that other writes do not wait: a job may have 100,000 trials.
constexpr int kPrunedAtOnce = 4;
constexpr absl::Duration kSweepEvery = absl::Seconds(1);

FleetSession SessionOf(const Caller& caller, const v1::RegisterRequest& request,
                       const std::string& name, SteadyTime now) {
  FleetSession session;
  session.id = name;
  session.host = request.host_uuid();
  session.boot_id = request.boot_id();
  session.instance = request.instance();
  session.token = caller.token;
  session.certificate = caller.certificate;
  session.generator = request.generator();
  session.last_seen = now;
  for (const v1::Device& device : request.devices()) {
    session.devices[device.id()] = DeviceKey(session.host, device);
  }
  return session;
}

}  // namespace

FleetState::FleetState(Metrics& metrics, FleetOptions options)
    : metrics_(metrics),
      options_(std::move(options)),
      devices_(options_, metrics_, changes_),
      jobs_(options_, outbox_, changes_),
      searches_(options_, outbox_, changes_, jobs_),
      budget_(options_, outbox_),
      queue_(options_, outbox_, metrics_, jobs_, devices_, budget_),
      parts_{options_, outbox_,   changes_, metrics_, hosts_,
             devices_, searches_, jobs_,    budget_,  confirmations_},
      leases_(parts_),
      grants_(parts_, queue_, leases_) {}

// ---------------------------------------------------------------------------------------- recovery

absl::Status FleetState::Recover(tuner::Records& records) {
  HEDDLE_ASSIGN_OR_RETURN(epoch, NextEpoch(records));
  HEDDLE_ASSIGN_OR_RETURN(trial, LargestTrial(records));
  HEDDLE_RETURN_IF_ERROR(LoadFleet(records));
  HEDDLE_RETURN_IF_ERROR(budget_.Load(records));
  HEDDLE_ASSIGN_OR_RETURN(jobs, LoadOpenJobs(records));
  epoch_ = epoch;
  recovered_ = options_.steady();
  jobs_.next_trial() = trial + 1;
  if (!options_.own_host.empty()) {
    v1::FleetHost own;
    own.set_host_uuid(options_.own_host);
    own.set_trusted(true);
    HEDDLE_RETURN_IF_ERROR(SaveHost(records, own));
    hosts_.Take(own);
  }
  for (const v1::Job& job : jobs) {
    // One whose specification cannot be read has the reason as its error.
    absl::Status s =
        job.has_spec() ? jobs_.Recover(job, records) : absl::InvalidArgumentError(job.error());
    if (absl::IsInvalidArgument(s)) s = jobs_.GiveUp(job, std::string(s.message()), records);
    HEDDLE_RETURN_IF_ERROR(s);
  }
  HEDDLE_RETURN_IF_ERROR(PruneLateTrials(records, options_.now() - kLateResults));
  return leases_.Recover(records, epoch);
}

void FleetState::Recovered() {
  for (const auto& [id, job] : jobs_.all()) changes_.came_back.insert(id);
}

absl::Status FleetState::LoadFleet(tuner::Records& records) {
  HEDDLE_ASSIGN_OR_RETURN(devices, LoadDevices(records));
  HEDDLE_ASSIGN_OR_RETURN(pins, LoadPins(records));
  HEDDLE_ASSIGN_OR_RETURN(hosts, LoadHosts(records));
  hosts_.Load(hosts);
  devices_.Load(pins, devices);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------- the end of an
// event

void FleetState::SeeToChanges() {
  for (int64_t id : std::exchange(changes_.came_back, {})) {
    ActiveJob* job = jobs_.Find(id);
    if (job == nullptr || !job->cancelling || job->searching || leases_.AnyOpen(id)) continue;
    jobs_.EndCancelled(*job);
  }
  for (int64_t id : std::exchange(changes_.stopped, {})) {
    queue_.Remove(id);
    leases_.Revoke(id);
  }
  for (int64_t id : std::exchange(changes_.waiting, {})) {
    if (ActiveJob* job = jobs_.Find(id)) queue_.Add(*job);
  }
  queue_.Match();
  if (!draining_) {
    queue_.Start();
    for (const std::string& model : std::exchange(changes_.to_give, {})) grants_.Serve(model);
  }
  grants_.Expire(draining_);
}

Effects FleetState::TakeEffects() {
  SeeToChanges();
  return outbox_.Take();
}

// -------------------------------------------------------------------------------------------- time

void FleetState::Drain() {
  draining_ = true;
  for (auto& [id, job] : jobs_.all()) job.stop = true;
}

void FleetState::Tick() {
  leases_.Expire();
  if (options_.steady() - swept_ < kSweepEvery) return;
  swept_ = options_.steady();
  Sweep();
}

void FleetState::Sweep() {
  devices_.EndSilentSessions();
  devices_.Refresh();
  for (auto& [id, job] : jobs_.all()) {
    if (options_.now() > job.expires && !job.cancelling && !job.ending) {
      jobs_.Cancel(job, "expired");
    }
  }
  StopJobsWithoutDevices();
  queue_.EndSlices();
  budget_.Book();
  if (options_.steady() - pruned_ >= kPruneEvery) Prune();
  SeeToChanges();
  UpdateGauges();
}

void FleetState::StopJobsWithoutDevices() {
  const SteadyTime now = options_.steady();
  for (auto& [id, job] : jobs_.all()) {
    if (!job.searching || job.stop) continue;
    if (now - job.booked >= kBookEvery) searches_.BookTime(job);
    job.usable = queue_.UsableDevices(job);
    if (job.usable > 0) job.last_usable = now;
    if (now - job.last_usable > options_.lease) {
      // The searcher ends; another goes on from what is stored when there is a device.
      job.stop = true;
      jobs_.SetState(job, v1::Job::STATE_WAITING_DEVICE);
    }
  }
}

void FleetState::Prune() {
  pruned_ = options_.steady();
  std::vector<std::string> forgotten;
  // Just after a start daemons are still to come back.
  if (options_.steady() - recovered_ >= kPruneEvery) forgotten = devices_.Old();
  for (const std::string& id : forgotten) {
    devices_.Forget(id);
    leases_.ForgetDevice(id);
    grants_.ForgetDevice(id);
  }
  auto jobs = std::make_shared<int>(0);
  outbox_.Write(
      [=, this, now = options_.now()](tuner::Records& records) -> absl::Status {
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

void FleetState::UpdateGauges() {
  std::map<v1::Job::State, int> jobs;
  for (v1::Job::State state : {v1::Job::STATE_QUEUED, v1::Job::STATE_RUNNING,
                               v1::Job::STATE_WAITING_DEVICE, v1::Job::STATE_CANCELLING}) {
    jobs[state] = 0;
  }
  size_t queued = 0;
  for (const auto& [id, job] : jobs_.all()) {
    ++jobs[job.state];
    queued += job.candidates.waiting();
  }
  for (const auto& [state, count] : jobs) metrics_.SetJobs(WordOf(state), count);
  metrics_.ready_queue.Set(static_cast<double>(queued));
  metrics_.searchers.Set(searchers());
  int busy = 0, idle = 0, gone = 0;
  for (const auto& [id, device] : devices_.all()) {
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

// -------------------------------------------------------------------------------- jobs and
// searches

void FleetState::CancelJob(const Caller& caller, int64_t id, const Reply<v1::Job>& reply) {
  const bool his = jobs_.Cancel(caller, id);
  SeeToChanges();  // what is written of its end is in the reply
  jobs_.ReplyWhenWritten(caller, id, his, reply);
}

void FleetState::ReportRuns(int64_t id, const std::string& model, std::vector<WorkloadRun> runs) {
  ActiveJob* job = jobs_.Find(id);
  if (job == nullptr || job->ending || job->cancelling) return;
  queue_.Remove(id);  // no device of a daemon's is to wake it
  jobs_.ReportRuns(*job, model, std::move(runs));
}

void FleetState::EndRuns(int64_t id, const std::string& error) {
  ActiveJob* job = jobs_.Find(id);
  if (job == nullptr || job->cancelling) return;
  jobs_.End(*job, error.empty() ? v1::Job::STATE_SUCCEEDED : v1::Job::STATE_FAILED,
            v1::Job::STOP_REASON_UNSPECIFIED, error);
}

void FleetState::SearchEnded(int64_t id) {
  queue_.End(id);
  if (ActiveJob* job = jobs_.Find(id)) job->searching = false;
  changes_.came_back.insert(id);
  changes_.waiting.insert(id);
}

// ------------------------------------------------------------------------------------------- fleet

void FleetState::Register(const Caller& caller, const v1::RegisterRequest& request,
                          const std::string& name, std::optional<int64_t> revoked,
                          const Reply<v1::RegisterResponse>& reply) {
  const FleetSession session = SessionOf(caller, request, name, options_.steady());
  std::set<std::string> keys;
  for (const v1::Device& device : request.devices()) {
    keys.insert(DeviceKey(session.host, device));
  }
  const auto stored = std::make_shared<v1::FleetHost>();
  stored->set_host_uuid(session.host);
  absl::Status status;
  if (keys.size() != session.devices.size()) {
    status = WrongField("devices", "two of them have the same uuid");
  }
  if (status.ok()) status = hosts_.Claim(caller, session.host, revoked);
  if (status.ok()) {
    status = devices_.CheckOwners(session);
    if (!status.ok()) BelieveHost(*stored, status, /*claim=*/true);  // which is given up
  }
  if (!status.ok()) return outbox_.Send<v1::RegisterResponse>(reply, status);

  const std::vector<v1::FleetDevice> saved = devices_.Register(session, request);
  const v1::RegisterResponse response = Welcome(session, saved);
  LogEvent(Severity::kInfo, "daemon_registered",
           {{"host", session.host},
            {"hostname", request.hostname()},
            {"instance", session.instance},
            {"devices", request.devices_size()},
            {"epoch", epoch_},
            {"token", caller.token},
            {"certificate", caller.certificate},
            {"peer", caller.peer},
            {"no_work_because", response.no_work_because()}});
  outbox_.Write(
      [saved, stored, token = session.token](tuner::Records& records) {
        absl::Status written = StoreClaim(records, token, *stored);
        for (const v1::FleetDevice& device : saved) written.Update(SaveDevice(records, device));
        return written;
      },
      [=, this, id = session.id](const absl::Status& written) {
        BelieveHost(*stored, written, /*claim=*/true);
        if (!written.ok()) devices_.EndSession(id);  // its daemon does not know of it
        outbox_.Send<v1::RegisterResponse>(
            reply, written.ok() ? absl::StatusOr<v1::RegisterResponse>(response) : written);
      },
      Persistence::kOnce);
  leases_.BlameForDeath(session);
}

v1::RegisterResponse FleetState::Welcome(const FleetSession& session,
                                         const std::vector<v1::FleetDevice>& saved) const {
  v1::RegisterResponse response;
  response.set_session(session.id);
  response.set_epoch(epoch_);
  *response.mutable_heartbeat_interval() = DurationOf(absl::ToDoubleSeconds(options_.heartbeat));
  *response.mutable_lease_duration() = DurationOf(absl::ToDoubleSeconds(options_.lease));
  if (session.generator != measure::kGeneratorVersion) {
    response.set_no_work_because(absl::StrCat(
        "the daemon generates code of version ", session.generator, " and the server of ",
        measure::kGeneratorVersion, ": install the same heddle on both"));
  } else if (!saved.empty() && !saved.front().no_work_because().empty()) {
    response.set_no_work_because(
        absl::StrCat(saved.front().name(), ": ", saved.front().no_work_because()));
  }
  return response;
}

void FleetState::Heartbeat(const Caller& caller, const v1::HeartbeatRequest& request,
                           const Reply<v1::HeartbeatResponse>& reply) {
  const auto session = devices_.FindSession(caller, request.session());
  if (!session.ok()) return outbox_.Send<v1::HeartbeatResponse>(reply, session.status());
  for (const v1::WorkerStatus& worker : request.device_states()) {
    devices_.TakeWorker(**session, worker);
  }
  v1::HeartbeatResponse response;
  leases_.Beat(**session, request, response);
  response.set_drain(draining_);
  outbox_.Send<v1::HeartbeatResponse>(reply, response);
}

std::vector<v1::FleetDevice> FleetState::Devices(const std::string& tenant) const {
  std::vector<v1::FleetDevice> devices = devices_.Describe();
  for (v1::FleetDevice& device : devices) {
    const ActiveJob* job = jobs_.Find(grants_.JobOf(device.name()));
    if (job != nullptr && (tenant.empty() || job->tenant == tenant)) {
      device.set_job(JobName(job->id));
    }
  }
  return devices;
}

// --------------------------------------------------------------------------------- administration

void FleetState::BelieveHost(const v1::FleetHost& stored, const absl::Status& status, bool claim) {
  if (hosts_.Believe(stored, status, claim)) devices_.EndSessionsOf(stored.host_uuid());
}

void FleetState::SetHost(const Caller& caller, const v1::SetHostRequest& request,
                         const Reply<v1::FleetHost>& reply) {
  const std::string& host = request.host_uuid();
  if (!hosts_.Knows(host)) {
    return outbox_.Send<v1::FleetHost>(
        reply, absl::NotFoundError(absl::StrCat("no host ", host, " has registered")));
  }
  const auto stored = std::make_shared<v1::FleetHost>();
  outbox_.WriteThenBelieve<v1::FleetHost>(
      [=, action = request.action(), token = hosts_.TokenOf(host)](tuner::Records& records) {
        return StoreAction(records, host, action, token, *stored);
      },
      [=, this] {
        BelieveHost(*stored, absl::OkStatus(), /*claim=*/false);
        LogEvent(Severity::kInfo, "host_set",
                 {{"host", host},
                  {"action", WordOf(request.action())},
                  {"token", caller.token},
                  {"peer", caller.peer}});
        return *stored;
      },
      reply);
}

void FleetState::SetDeviceState(const Caller& caller, const v1::SetDeviceStateRequest& request,
                                const Reply<v1::FleetDevice>& reply) {
  const DeviceEntry* known = devices_.Find(request.name());
  if (known == nullptr) {
    return outbox_.Send<v1::FleetDevice>(
        reply, absl::NotFoundError(absl::StrCat("there is no device ", request.name())));
  }
  v1::FleetDevice asked = known->info;
  asked.set_state(request.state());
  outbox_.WriteThenBelieve<v1::FleetDevice>(
      [=](tuner::Records& records) { return SaveDeviceState(records, asked); },
      [=, this]() -> absl::StatusOr<v1::FleetDevice> {
        const DeviceEntry* device = devices_.Find(request.name());
        if (device == nullptr) {
          return absl::NotFoundError(
              absl::StrCat("the device ", request.name(), " was forgotten meanwhile"));
        }
        devices_.SetState(request.name(), request.state());
        LogEvent(Severity::kInfo, "device_state_set",
                 {{"device", request.name()},
                  {"state", WordOf(request.state())},
                  {"token", caller.token},
                  {"peer", caller.peer}});
        return device->info;
      },
      reply);
}

void FleetState::PinModel(const Caller& caller, const v1::PinModelRequest& request,
                          const Reply<v1::DeviceModel>& reply) {
  const auto device = devices_.DeviceToPin(request);
  if (!device.ok()) return outbox_.Send<v1::DeviceModel>(reply, device.status());
  // A pin that gives some of the rates keeps the others as they are, which must be known.
  if (!pinning_.insert(request.name()).second) {
    return outbox_.Send<v1::DeviceModel>(
        reply, absl::AbortedError(absl::StrCat("another pin of \"", request.name(),
                                               "\" is being written: try again")));
  }
  outbox_.Write(
      [device = *device, request](tuner::Records& records) {
        return request.unpin() ? DeletePin(records, request.name()) : SavePin(records, device);
      },
      [=, this, device = *device](const absl::Status& status) {
        pinning_.erase(request.name());
        if (!status.ok()) return outbox_.Send<v1::DeviceModel>(reply, status);
        const v1::DeviceModel now =
            request.unpin() ? devices_.Unpin(request.name()) : devices_.Pin(device);
        LogEvent(Severity::kInfo, request.unpin() ? "model_unpinned" : "model_pinned",
                 {{"model", request.name()},
                  {"gflops", now.target().peak_gflops()},
                  {"gbs", now.target().memory_gbs()},
                  {"token", caller.token},
                  {"peer", caller.peer}});
        outbox_.Send<v1::DeviceModel>(reply, now);
      },
      Persistence::kOnce);
}

}  // namespace heddle::server
