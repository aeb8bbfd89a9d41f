// The fleet: sessions of daemons and their devices.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "measure/codegen/codegen.h"
#include "measure/run/messages.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/engine/engine.h"

namespace heddle::server {
namespace {

absl::Status UnknownSession() {
  return ErrorWithReason(absl::StatusCode::kFailedPrecondition, "SESSION_UNKNOWN",
                         "session: unknown to this server; register again");
}

}  // namespace

// --------------------------------------------------------------------------------- who may do what

tuner::Environment Engine::EnvironmentOf(const v1::Device& device, v1::L2Policy l2) const {
  return tuner::MakeEnvironment(measure::FromProto(device), FromProto(l2));
}

std::string Engine::DeviceKey(const std::string& host, const std::string& device) {
  return absl::StrCat(host, "/", device);
}

std::string Engine::HostOf(const std::string& device_key) {
  return device_key.substr(0, device_key.rfind('/'));
}

absl::StatusOr<Engine::FleetSession*> Engine::FindSession(const std::string& id) {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return UnknownSession();
  it->second.last_seen = SteadyNow();
  return &it->second;
}

bool Engine::Usable(const DeviceEntry& device) const {
  auto session = sessions_.find(device.session);
  if (session == sessions_.end() || session->second.generator != measure::kGeneratorVersion) {
    return false;
  }
  if (SteadyNow() - session->second.last_seen > options_.lease) return false;
  if (device.info.state() == v1::FleetDevice::DRAINING) return false;
  switch (device.info.worker().state()) {
    case v1::WorkerStatus::UNHEALTHY:
    case v1::WorkerStatus::WEDGED:
    case v1::WorkerStatus::DRAINING:
    case v1::WorkerStatus::GONE:
      return false;
    default:
      return true;
  }
}

bool Engine::Matches(const v1::DeviceSelector& selector, const v1::FleetDevice& device) {
  const v1::Target& target = device.device().target();
  return (selector.model().empty() || selector.model() == target.name()) &&
         (selector.api().empty() || selector.api() == target.api()) &&
         (selector.device().empty() || selector.device() == device.id());
}

bool Engine::WorksOn(const ActiveJob& job, const DeviceEntry& device) const {
  return device.info.device().target().name() == job.device.target().name() &&
         Matches(job.spec.device(), device.info);
}

int Engine::UsableDevices(const ActiveJob& job) const {
  int count = 0;
  for (const auto& [id, device] : devices_) count += Usable(device) && WorksOn(job, device);
  return count;
}

// One of the model that has the most devices for each job at work on it.
const v1::FleetDevice* Engine::ChooseDevice(const ActiveJob& job) {
  struct Model {
    const v1::FleetDevice* device = nullptr;
    double devices = 0;
  };
  std::map<std::string, Model> models;
  const std::string& bound = job.device.target().name();
  for (const auto& [id, device] : devices_) {
    const std::string& name = device.info.device().target().name();
    if (!Usable(device) || !Matches(job.spec.device(), device.info)) continue;
    if (!bound.empty() && bound != name) continue;
    Model& model = models[name];
    model.device = &device.info;
    ++model.devices;
  }
  const v1::FleetDevice* best = nullptr;
  double most = 0;
  for (const auto& [name, model] : models) {
    double jobs = 1;
    for (const auto& [id, other] : jobs_) {
      jobs += other.searching && other.device.target().name() == name;
    }
    if (model.devices / jobs > most) {
      most = model.devices / jobs;
      best = model.device;
    }
  }
  return best;
}

// ------------------------------------------------------------------------------------------- calls

void Engine::Register(const v1::RegisterRequest& request, Reply<v1::RegisterResponse> reply) {
  v1::RegisterResponse response;
  std::vector<v1::FleetDevice> saved;
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    FleetSession session;
    session.id = absl::StrCat(request.host_uuid(), "-", epoch_, "-", next_lease_++);
    session.host = request.host_uuid();
    session.boot_id = request.boot_id();
    session.generator = request.generator();
    session.last_seen = SteadyNow();
    // The host's older session ends; its devices are this one's, or gone.
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      it = it->second.host == session.host ? sessions_.erase(it) : std::next(it);
    }
    for (auto& [key, entry] : devices_) {
      if (!sessions_.contains(entry.session)) entry.session.clear();
    }
    for (const v1::Device& device : request.devices()) {
      const std::string key = DeviceKey(session.host, device.id());
      DeviceEntry& entry = devices_[key];
      entry.session = session.id;
      entry.request_id.clear();
      models_[device.target().name()] = device;
      v1::FleetDevice& info = entry.info;
      info.set_id(key);
      *info.mutable_device() = device;
      info.set_hostname(request.hostname());
      info.set_generator(request.generator());
      *info.mutable_last_seen() = ToProto(Now());
      info.mutable_worker()->set_device(device.id());
      info.mutable_worker()->set_state(v1::WorkerStatus::STARTING);
      if (info.state() == v1::FleetDevice::STATE_UNSPECIFIED) {
        info.set_state(v1::FleetDevice::ENABLED);
      }
      saved.push_back(info);
    }
    response.set_session(session.id);
    response.set_epoch(epoch_);
    response.set_heartbeat_s(absl::ToDoubleSeconds(options_.heartbeat));
    response.set_lease_s(absl::ToDoubleSeconds(options_.lease));
    if (session.generator != measure::kGeneratorVersion) {
      response.set_no_work_because(absl::StrCat(
          "the daemon generates code of version ", session.generator, " and the server of ",
          measure::kGeneratorVersion, ": install the same heddle on both"));
    }
    LogEvent(Severity::kInfo, "daemon_registered",
             {{"host", session.host},
              {"hostname", request.hostname()},
              {"devices", request.devices_size()},
              {"epoch", epoch_},
              {"no_work_because", response.no_work_because()}});
    sessions_.emplace(session.id, session);
    Write(
        [saved](tuner::Records& records) {
          absl::Status status;
          for (const v1::FleetDevice& device : saved) status.Update(SaveDevice(records, device));
          return status;
        },
        [=](const absl::Status& status) {
          if (!status.ok()) return reply(status);
          reply(response);
        },
        Persistence::kOnce);
    StartJobs(after);
  }
  Run(after);
}

std::vector<v1::FleetDevice> Engine::Devices() const {
  absl::MutexLock lock(&mutex_);
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
      device.mutable_worker()->set_state(v1::WorkerStatus::GONE);
    } else {
      *device.mutable_last_seen() = ToProto(Now() - silent);
    }
    if (entry.job != 0 && jobs_.contains(entry.job)) device.set_job(JobName(entry.job));
  }
  return devices;
}

std::map<std::string, v1::Device> Engine::Models() const {
  absl::MutexLock lock(&mutex_);
  return models_;
}

std::optional<v1::Device> Engine::FindModel(const std::string& model) const {
  absl::MutexLock lock(&mutex_);
  auto it = models_.find(model);
  return it == models_.end() ? std::nullopt : std::optional<v1::Device>(it->second);
}

void Engine::SetDeviceState(const v1::SetDeviceStateRequest& request,
                            Reply<v1::FleetDevice> reply) {
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    auto it = devices_.find(request.id());
    if (it == devices_.end()) {
      after.push_back(
          [=] { reply(absl::NotFoundError(absl::StrCat("there is no device ", request.id()))); });
    } else {
      it->second.info.set_state(request.state());
      const v1::FleetDevice device = it->second.info;
      Write([=](tuner::Records& records) { return SaveDevice(records, device); },
            [=](const absl::Status& status) {
              if (!status.ok()) return reply(status);
              reply(device);
            },
            Persistence::kOnce);
      StartJobs(after);
    }
  }
  Run(after);
}

void Engine::Heartbeat(const v1::HeartbeatRequest& request, Reply<v1::HeartbeatResponse> reply) {
  v1::HeartbeatResponse response;
  absl::Status status;
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    auto session = FindSession(request.session());
    status = session.status();
    if (status.ok()) {
      FleetSession& s = **session;
      for (const v1::WorkerStatus& worker : request.device_states()) {
        auto device = devices_.find(DeviceKey(s.host, worker.device()));
        if (device == devices_.end()) continue;
        if (worker.state() != device->second.info.worker().state() &&
            (worker.state() == v1::WorkerStatus::UNHEALTHY ||
             worker.state() == v1::WorkerStatus::WEDGED)) {
          LogEvent(Severity::kWarning, "device_unusable",
                   {{"device", device->first},
                    {"state", v1::WorkerStatus::State_Name(worker.state())},
                    {"detail", worker.detail()}});
        }
        *device->second.info.mutable_worker() = worker;
      }
      std::set<int64_t> held;
      for (int64_t id : request.leases()) {
        auto lease = leases_.find(id);
        const bool ours = lease != leases_.end() && lease->second.host == s.host;
        if (!ours || lease->second.expired || lease->second.revoked) response.add_revoke(id);
        if (!ours) continue;
        lease->second.last_seen = SteadyNow();
        held.insert(lease->second.open.begin(), lease->second.open.end());
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
              nullptr, Persistence::kOnce);
      }
      response.set_drain(draining_);
      StartJobs(after);
    }
  }
  Run(after);
  if (!status.ok()) return reply(status);
  reply(response);
}

}  // namespace heddle::server
