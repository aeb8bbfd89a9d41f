// The fleet: sessions of daemons and their devices.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "measure/codegen/codegen.h"
#include "measure/run/messages.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/db/fleet_store.h"
#include "server/fleet/fleet_state.h"
#include "server/fleet/health_metrics.h"

namespace heddle::server {
namespace {

// A worker that is started again after a failure, or is not any more: counted when it is told of.
void CountRestart(Metrics& metrics, const v1::WorkerStatus& worker) {
  switch (worker.state()) {
    case v1::WorkerStatus::STATE_RESTARTING:
    case v1::WorkerStatus::STATE_UNHEALTHY:
    case v1::WorkerStatus::STATE_WEDGED:
      CountWorkerFailure(metrics.registry(), WordOf(worker.state()));
      break;
    default:
      break;
  }
}

absl::Status UnknownSession() {
  return ErrorWithReason(absl::StatusCode::kFailedPrecondition, "SESSION_UNKNOWN",
                         "session: unknown to this server; register again");
}

}  // namespace

// --------------------------------------------------------------------------------- who may do what

tuner::Environment FleetState::EnvironmentOf(const v1::Device& device, v1::L2Policy l2) const {
  return tuner::MakeEnvironment(measure::FromProto(device), FromProto(l2));
}

const DeviceModels::Model& FleetState::ModelOf(const DeviceEntry& device) const {
  return *models_.Find(device.info.device().target().name());
}

absl::StatusOr<FleetState::FleetSession*> FleetState::FindSession(const Caller& caller,
                                                                  const std::string& id) {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return UnknownSession();
  // Another's session is as unknown as one that there never was.
  if (it->second.token != caller.token || it->second.certificate != caller.certificate) {
    LogEvent(Severity::kWarning, "foreign_session",
             {{"host", it->second.host},
              {"token", caller.token},
              {"owner", it->second.token},
              {"peer", caller.peer}});
    return UnknownSession();
  }
  const bool was_silent = SteadyNow() - it->second.last_seen > options_.lease;
  it->second.last_seen = SteadyNow();
  if (was_silent) {
    for (const auto& [name, key] : it->second.devices) Refresh(devices_[key]);
  }
  return &it->second;
}

bool FleetState::Usable(const DeviceEntry& device) const {
  auto session = sessions_.find(device.session);
  if (session == sessions_.end() || session->second.generator != measure::kGeneratorVersion) {
    return false;
  }
  if (SteadyNow() - session->second.last_seen > options_.lease) return false;
  if (device.info.state() == v1::FleetDevice::STATE_DRAINING) return false;
  if (!device.info.no_work_because().empty()) return false;
  switch (device.info.worker().state()) {
    case v1::WorkerStatus::STATE_UNHEALTHY:
    case v1::WorkerStatus::STATE_WEDGED:
    case v1::WorkerStatus::STATE_DRAINING:
    case v1::WorkerStatus::STATE_GONE:
      return false;
    default:
      return true;
  }
}

// ------------------------------------------------------------------------------------------- calls

std::vector<v1::FleetDevice> FleetState::Devices(const std::string& tenant) const {
  std::vector<v1::FleetDevice> devices;
  for (const auto& [id, entry] : devices_) {
    if (id.empty() || entry.info.id().empty()) continue;
    devices.push_back(entry.info);
    v1::FleetDevice& device = devices.back();
    auto session = sessions_.find(entry.session);
    const absl::Duration silent = session == sessions_.end()
                                      ? absl::InfiniteDuration()
                                      : SteadyNow() - session->second.last_seen;
    if (silent > options_.lease) {
      device.mutable_worker()->set_state(v1::WorkerStatus::STATE_GONE);
    } else {
      *device.mutable_last_seen_time() = ToProto(Now() - silent);
    }
    const auto job = jobs_.find(entry.job);
    if (job != jobs_.end() && (tenant.empty() || job->second.tenant == tenant)) {
      device.set_job(JobName(entry.job));
    }
  }
  return devices;
}

std::vector<std::string> FleetState::ChangedSince(const tuner::Environment& then) const {
  std::vector<std::string> changed;
  const auto found = versions_.find(then.device_name);
  if (found == versions_.end()) return changed;
  if (!found->second.drivers.contains(then.driver)) changed.push_back("driver");
  if (!found->second.compilers.contains(then.compiler)) changed.push_back("compiler");
  return changed;
}

void FleetState::CountVersions(const v1::Device& device, int count) {
  Versions& versions = versions_[device.target().name()];
  for (const auto& [of, version] : {std::pair(&versions.drivers, device.driver()),
                                    std::pair(&versions.compilers, device.compiler())}) {
    if (((*of)[version] += count) <= 0) of->erase(version);
  }
}

void FleetState::SetDeviceState(const Caller& caller, const v1::SetDeviceStateRequest& request,
                                const Reply<v1::FleetDevice>& reply) {
  auto it = devices_.find(request.id());
  if (it == devices_.end()) {
    return Send<v1::FleetDevice>(
        reply, absl::NotFoundError(absl::StrCat("there is no device ", request.id())));
  }
  v1::FleetDevice asked = it->second.info;
  asked.set_state(request.state());
  WriteThenBelieve<v1::FleetDevice>(
      [=](tuner::Records& records) { return SaveDeviceState(records, asked); },
      [=, this]() -> absl::StatusOr<v1::FleetDevice> {
        const auto set = devices_.find(request.id());
        if (set == devices_.end()) {
          return absl::NotFoundError(
              absl::StrCat("the device ", request.id(), " was forgotten meanwhile"));
        }
        set->second.info.set_state(request.state());
        LogEvent(Severity::kInfo, "device_state_set",
                 {{"device", request.id()},
                  {"state", WordOf(request.state())},
                  {"token", caller.token},
                  {"peer", caller.peer}});
        Refresh(set->second);
        StartJobs();
        ServeWaiters(asked.device().target().name());
        return set->second.info;
      },
      reply);
}

void FleetState::TakeWorker(const FleetSession& session, const v1::WorkerStatus& worker) {
  auto key = session.devices.find(worker.device());
  auto device = key == session.devices.end() ? devices_.end() : devices_.find(key->second);
  if (device == devices_.end() || device->second.session != session.id) return;
  v1::WorkerStatus& known = *device->second.info.mutable_worker();
  if (worker.state() != known.state()) {
    if (worker.state() == v1::WorkerStatus::STATE_UNHEALTHY ||
        worker.state() == v1::WorkerStatus::STATE_WEDGED) {
      LogEvent(Severity::kWarning, "device_unusable",
               {{"device", device->first},
                {"state", WordOf(worker.state())},
                {"detail", worker.detail()}});
    }
    CountRestart(metrics_, worker);
  }
  known = worker;
  const bool was_usable = device->second.usable;
  Refresh(device->second);
  if (device->second.usable && !was_usable) {
    ServeWaiters(device->second.info.device().target().name());
  }
}

void FleetState::Heartbeat(const Caller& caller, const v1::HeartbeatRequest& request,
                           const Reply<v1::HeartbeatResponse>& reply) {
  auto session = FindSession(caller, request.session());
  if (!session.ok()) return Send<v1::HeartbeatResponse>(reply, session.status());
  FleetSession& s = **session;
  for (const v1::WorkerStatus& worker : request.device_states()) TakeWorker(s, worker);
  StartJobs();
  v1::HeartbeatResponse response;
  std::set<int64_t> held;
  for (int64_t id : request.leases()) {
    auto lease = leases_.find(id);
    const bool ours = lease != leases_.end() && lease->second.host == s.host;
    if (!ours || lease->second.expired || lease->second.revoked) response.add_revoke(id);
    if (!ours) continue;
    lease->second.last_seen = SteadyNow();
    held.insert(lease->second.open.begin(), lease->second.open.end());
    lease->second.running.clear();
    for (int64_t candidate : request.running()) {
      if (lease->second.open.contains(candidate)) lease->second.running.insert(candidate);
    }
  }
  // Nobody brings another host's candidates into suspicion.
  std::set<int64_t> running(request.running().begin(), request.running().end());
  std::erase_if(running, [&](int64_t id) { return !held.contains(id); });
  std::vector<int64_t> started, stopped;
  std::set_difference(running.begin(), running.end(), s.running.begin(), s.running.end(),
                      std::back_inserter(started));
  std::set_difference(s.running.begin(), s.running.end(), running.begin(), running.end(),
                      std::back_inserter(stopped));
  if (!started.empty() || !stopped.empty()) {
    s.running = running;
    Write([=](tuner::Records& records) { return SetRunning(records, started, stopped); },
          [=, this, id = s.id](const absl::Status& status) {
            const auto known = sessions_.find(id);
            if (status.ok() || known == sessions_.end()) return;
            // The next heartbeat has it written.
            for (int64_t candidate : started) known->second.running.erase(candidate);
            known->second.running.insert(stopped.begin(), stopped.end());
          },
          Persistence::kOnce);
  }
  response.set_drain(draining_);
  Send<v1::HeartbeatResponse>(reply, response);
}

}  // namespace heddle::server
