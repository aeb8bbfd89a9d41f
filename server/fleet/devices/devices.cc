#include "server/fleet/devices/devices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "measure/codegen/codegen.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/metrics/health_metrics.h"

namespace heddle::server {
namespace {

// Heartbeats that a daemon may miss before another one may have its devices.
constexpr int kMissedBeats = 3;

// In a device's name.
constexpr char kHosts[] = "hosts/", kDevices[] = "/devices/";

bool IsUnique(const std::string& uuid) {
  if (uuid.empty()) return false;
  for (char c : uuid) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != ':') return false;
  }
  return true;
}

// As it registers, with the rates of its model, which is what everybody is shown.
v1::Device Believed(const DeviceModels::Model& model, v1::Device device) {
  const v1::Target& known = model.device.target();
  device.mutable_target()->set_peak_gflops(known.peak_gflops());
  device.mutable_target()->set_memory_gbs(known.memory_gbs());
  device.mutable_target()->set_clock_ghz(known.clock_ghz());
  return device;
}

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

std::string DeviceKey(const std::string& host, const v1::Device& device) {
  return absl::StrCat(kHosts, host, kDevices,
                      IsUnique(device.uuid()) ? device.uuid() : device.id());
}

std::string HostOf(const std::string& device_key) {
  absl::string_view rest = device_key;
  absl::ConsumePrefix(&rest, kHosts);
  return std::string(rest.substr(0, rest.find('/')));
}

tuner::Environment EnvironmentOf(const v1::Device& device, v1::L2Policy l2) {
  return tuner::MakeEnvironment(measure::FromProto(device), FromProto(l2));
}

void Devices::Load(const std::vector<v1::Device>& pins,
                   const std::vector<v1::FleetDevice>& devices) {
  models_ = DeviceModels();
  sessions_.clear();
  devices_.clear();
  usable_.clear();
  came_.clear();
  versions_.clear();
  for (const v1::Device& pin : pins) models_.Pin(pin);
  for (const v1::FleetDevice& device : devices) {
    models_.Learn(device.device(), false);
    CountVersions(device.device(), 1);
    devices_[device.name()].info = device;
  }
}

// ---------------------------------------------------------------------------------------- sessions

absl::StatusOr<FleetSession*> Devices::FindSession(const Caller& caller, const std::string& id) {
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
  const bool was_silent = options_.steady() - it->second.last_seen > options_.lease;
  it->second.last_seen = options_.steady();
  if (was_silent) {
    for (const auto& [name, key] : it->second.devices)
      if (const auto device = devices_.find(key); device != devices_.end()) Refresh(device->second);
  }
  return &it->second;
}

const FleetSession* Devices::Session(const std::string& id) const {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

FleetSession* Devices::Session(const std::string& id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

bool Devices::Lives(const FleetSession& session) const {
  const absl::Duration silent = options_.steady() - session.last_seen;
  return silent <= std::min(kMissedBeats * options_.heartbeat, options_.lease);
}

absl::Status Devices::CheckOwners(const FleetSession& session) const {
  for (const auto& [id, key] : session.devices) {
    auto device = devices_.find(key);
    if (device == devices_.end()) continue;
    auto owner = sessions_.find(device->second.session);
    if (owner == sessions_.end() || owner->second.instance == session.instance) continue;
    // One that has ended in order said that its devices are gone.
    const bool gone = device->second.info.worker().state() == v1::WorkerStatus::STATE_GONE;
    if (gone || !Lives(owner->second)) continue;
    return ErrorWithReason(
        absl::StatusCode::kAlreadyExists, "DEVICE_OWNED",
        absl::StrCat("devices: ", key, " belongs to the daemon ", owner->second.instance,
                     " of this host, which is alive; end that one, or give each its own devices"),
        kMissedBeats * options_.heartbeat);
  }
  return absl::OkStatus();
}

std::vector<v1::FleetDevice> Devices::Register(const FleetSession& session,
                                               const v1::RegisterRequest& request) {
  EndSessionsBefore(session);
  sessions_.emplace(session.id, session);
  std::vector<v1::FleetDevice> saved;
  for (const v1::Device& device : request.devices()) {
    saved.push_back(TakeDevice(session, device, request.hostname()));
  }
  return saved;
}

void Devices::EndSessionsBefore(const FleetSession& session) {
  std::set<std::string> ended;
  for (const auto& [id, other] : sessions_) {
    if (other.host == session.host && other.instance == session.instance) ended.insert(id);
  }
  for (const auto& [name, key] : session.devices) {
    auto device = devices_.find(key);
    if (device != devices_.end()) ended.insert(device->second.session);
  }
  for (const std::string& id : ended) EndSession(id);
}

void Devices::EndSession(const std::string& id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  for (const auto& [name, key] : it->second.devices) {
    const auto device = devices_.find(key);
    if (device == devices_.end() || device->second.session != id) continue;
    device->second.session.clear();
    *device->second.info.mutable_last_seen_time() =
        ToProto(options_.now() - (options_.steady() - it->second.last_seen));
    Refresh(device->second);
  }
  sessions_.erase(it);
}

void Devices::EndSessionsOf(const std::string& host) {
  std::set<std::string> ended;
  for (const auto& [id, session] : sessions_) {
    if (session.host == host) ended.insert(id);
  }
  for (const std::string& id : ended) EndSession(id);
}

void Devices::EndSilentSessions() {
  const SteadyTime now = options_.steady();
  std::set<std::string> silent;
  for (const auto& [id, session] : sessions_) {
    if (now - session.last_seen > kLateResults) silent.insert(id);
  }
  for (const std::string& id : silent) EndSession(id);
}

const v1::FleetDevice& Devices::TakeDevice(const FleetSession& session, const v1::Device& device,
                                           const std::string& hostname) {
  const std::string& model_name = device.target().name();
  bool abandoned = true;
  if (const DeviceModels::Model* old = models_.Find(model_name); old != nullptr && !old->known()) {
    for (const auto& [key, entry] : devices_) {
      abandoned &= !(entry.usable && entry.model() == model_name);
    }
  }
  const DeviceModels::Model& model = models_.Learn(device, abandoned);
  const std::string key = DeviceKey(session.host, device);
  DeviceEntry& entry = devices_[key];
  if (!entry.info.name().empty()) CountVersions(entry.info.device(), -1);
  CountVersions(device, 1);
  entry.session = session.id;
  v1::FleetDevice& info = entry.info;
  info.set_name(key);
  *info.mutable_device() = Believed(model, device);
  info.set_no_work_because(WhyNoWork(model, device.target()));
  info.set_hostname(hostname);
  info.set_generator(session.generator);
  *info.mutable_last_seen_time() = ToProto(options_.now());
  info.mutable_worker()->set_device(device.id());
  info.mutable_worker()->set_state(v1::WorkerStatus::STATE_STARTING);
  if (info.state() == v1::FleetDevice::STATE_UNSPECIFIED) {
    info.set_state(v1::FleetDevice::STATE_ENABLED);
  }
  const double peak = device.target().peak_gflops(), gbs = device.target().memory_gbs();
  const v1::Target& known = model.device.target();
  if (peak > 2 * known.peak_gflops() || gbs > 2 * known.memory_gbs() ||
      2 * peak < known.peak_gflops() || 2 * gbs < known.memory_gbs()) {
    LogEvent(Severity::kWarning, "rates_differ",
             {{"device", key},
              {"token", session.token},
              {"claimed_gflops", peak},
              {"claimed_gbs", gbs},
              {"gflops", known.peak_gflops()},
              {"gbs", known.memory_gbs()}});
  }
  Refresh(entry);
  return info;
}

// ----------------------------------------------------------------------------------------- devices

const DeviceEntry* Devices::Find(const std::string& key) const {
  const auto it = devices_.find(key);
  return it == devices_.end() ? nullptr : &it->second;
}

const DeviceEntry* Devices::Find(const FleetSession& session, const std::string& device) const {
  const auto key = session.devices.find(device);
  const DeviceEntry* entry = key == session.devices.end() ? nullptr : Find(key->second);
  return entry != nullptr && entry->session == session.id ? entry : nullptr;
}

int Devices::Usable(const std::string& model) const {
  const auto it = usable_.find(model);
  return it == usable_.end() ? 0 : it->second;
}

bool Devices::CanWork(const DeviceEntry& device) const {
  auto session = sessions_.find(device.session);
  if (session == sessions_.end() || session->second.generator != measure::kGeneratorVersion) {
    return false;
  }
  if (options_.steady() - session->second.last_seen > options_.lease) return false;
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

void Devices::Refresh(DeviceEntry& device) {
  const bool usable = CanWork(device);
  if (usable == device.usable) return;
  device.usable = usable;
  usable_[device.model()] += usable ? 1 : -1;
  if (!usable) return;
  came_[device.model()].insert(device.info.name());
  changes_.to_give.insert(device.model());  // a call of its daemon may be waiting
}

void Devices::Refresh() {
  for (auto& [key, device] : devices_) Refresh(device);
}

std::set<std::string> Devices::TakeCame(const std::string& model) {
  auto came = came_.extract(model);
  return came.empty() ? std::set<std::string>() : std::move(came.mapped());
}

std::vector<v1::FleetDevice> Devices::Describe() const {
  std::vector<v1::FleetDevice> described;
  for (const auto& [id, entry] : devices_) {
    v1::FleetDevice& device = described.emplace_back(entry.info);
    const FleetSession* session = Session(entry.session);
    const absl::Duration silent =
        session == nullptr ? absl::InfiniteDuration() : options_.steady() - session->last_seen;
    if (silent > options_.lease) {
      device.mutable_worker()->set_state(v1::WorkerStatus::STATE_GONE);
    } else {
      *device.mutable_last_seen_time() = ToProto(options_.now() - silent);
    }
  }
  return described;
}

void Devices::SetState(const std::string& key, v1::FleetDevice::State state) {
  DeviceEntry& device = devices_.at(key);
  device.info.set_state(state);
  Refresh(device);
}

void Devices::TakeWorker(const FleetSession& session, const v1::WorkerStatus& worker) {
  if (Find(session, worker.device()) == nullptr) return;
  const std::string& key = session.devices.at(worker.device());
  DeviceEntry& device = devices_.at(key);
  v1::WorkerStatus& known = *device.info.mutable_worker();
  if (worker.state() != known.state()) {
    if (worker.state() == v1::WorkerStatus::STATE_UNHEALTHY ||
        worker.state() == v1::WorkerStatus::STATE_WEDGED) {
      LogEvent(Severity::kWarning, "device_unusable",
               {{"device", key}, {"state", WordOf(worker.state())}, {"detail", worker.detail()}});
    }
    CountRestart(metrics_, worker);
  }
  known = worker;
  Refresh(device);
}

std::vector<std::string> Devices::Old() const {
  std::vector<std::string> old;
  for (const auto& [id, device] : devices_) {
    // What an administrator has taken out of service stays known as that.
    if (!device.session.empty() || device.info.state() == v1::FleetDevice::STATE_DRAINING) continue;
    const absl::Duration silent = options_.now() - TimeOf(device.info.last_seen_time());
    if (silent > options_.keep_devices) old.push_back(id);
  }
  return old;
}

void Devices::Forget(const std::string& key) {
  const auto it = devices_.find(key);
  if (it == devices_.end()) return;
  CountVersions(it->second.info.device(), -1);
  devices_.erase(it);
}

// ------------------------------------------------------------------------------------------ models

void Devices::CountVersions(const v1::Device& device, int count) {
  Versions& versions = versions_[device.target().name()];
  for (const auto& [of, version] : {std::pair(&versions.drivers, device.driver()),
                                    std::pair(&versions.compilers, device.compiler())}) {
    if (((*of)[version] += count) <= 0) of->erase(version);
  }
}

std::vector<std::string> Devices::ChangedSince(const tuner::Environment& then) const {
  std::vector<std::string> changed;
  const auto found = versions_.find(then.device_name);
  if (found == versions_.end()) return changed;
  if (!found->second.drivers.contains(then.driver)) changed.push_back("driver");
  if (!found->second.compilers.contains(then.compiler)) changed.push_back("compiler");
  return changed;
}

v1::DeviceModel Devices::Describe(const DeviceModels::Model& model) const {
  v1::DeviceModel described;
  described.set_name(model.device.target().name());
  described.set_source(model.source);
  *described.mutable_target() = model.device.target();
  described.set_devices(Usable(described.name()));
  return described;
}

std::vector<v1::DeviceModel> Devices::DescribeModels() const {
  std::vector<v1::DeviceModel> models;
  for (const auto& [name, model] : models_.all()) models.push_back(Describe(*model));
  return models;
}

absl::StatusOr<v1::Device> Devices::DeviceToPin(const v1::PinModelRequest& request) const {
  const std::string& name = request.name();
  const DeviceModels::Model* model = models_.Find(name);
  const DeviceEntry* like = Find(request.device());
  if (model == nullptr) {
    return absl::NotFoundError(absl::StrCat("no device \"", name,
                                            "\" has registered here; `heddle devices models` ",
                                            "lists those that have"));
  }
  if (!request.device().empty() && (like == nullptr || like->model() != name)) {
    return WrongField("device", absl::StrCat("there is no device ", request.device(),
                                             " of the model \"", name, "\""));
  }
  v1::Device device = request.device().empty() ? model->device : like->info.device();
  v1::Target& target = *device.mutable_target();
  if (request.peak_gflops() > 0) target.set_peak_gflops(request.peak_gflops());
  if (request.memory_gbs() > 0) target.set_memory_gbs(request.memory_gbs());
  if (!request.unpin() && (target.peak_gflops() <= 0 || target.memory_gbs() <= 0)) {
    return WrongField(target.peak_gflops() <= 0 ? "peak_gflops" : "memory_gbs",
                      "must be given, as the device does not say it");
  }
  return device;
}

v1::DeviceModel Devices::Pin(const v1::Device& device) {
  models_.Pin(device);
  return BelieveAgain(device.target().name());
}

v1::DeviceModel Devices::Unpin(const std::string& model) {
  models_.Unpin(model);
  return BelieveAgain(model);
}

v1::DeviceModel Devices::BelieveAgain(const std::string& name) {
  const DeviceModels::Model& model = *models_.Find(name);
  for (auto& [key, entry] : devices_) {
    const v1::Device& device = entry.info.device();
    if (device.target().name() != name) continue;
    entry.info.set_no_work_because(WhyNoWork(model, device.target()));
    *entry.info.mutable_device() = Believed(model, device);
    Refresh(entry);
  }
  return Describe(model);
}

}  // namespace heddle::server
