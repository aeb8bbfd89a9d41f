// Hosts and models: who may speak for which devices, and what is believed of them.
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "measure/codegen/codegen.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/db/fleet_store.h"
#include "server/fleet/fleet_state.h"

namespace heddle::server {
namespace {

// Heartbeats that a daemon may miss before another one may have its devices.
constexpr int kMissedBeats = 3;

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

// Writes that the host of `stored` belongs to the token. Where it did already it stays trusted, if
// it was.
absl::Status StoreClaim(tuner::Records& records, int64_t token, v1::FleetHost& stored) {
  const auto known = LoadHost(records, stored.host_uuid());
  if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
  const bool same = known.ok() && known->token() == token && !known->released();
  stored.set_token(token);
  stored.set_trusted(same && known->trusted());
  stored.set_released(false);
  return SaveHost(records, stored);
}

// Writes what an administrator says of a host that belonged to the token when he said it.
absl::Status StoreAction(tuner::Records& records, const std::string& host,
                         v1::SetHostRequest::Action action, int64_t token, v1::FleetHost& stored) {
  HEDDLE_ASSIGN_OR_RETURN(known, LoadHost(records, host));
  stored = std::move(known);
  if (stored.token() != token) {
    return absl::AbortedError(
        absl::StrCat("the host ", host, " has come to another token meanwhile: look at it again"));
  }
  stored.set_trusted(action == v1::SetHostRequest::ACTION_TRUST);
  if (action == v1::SetHostRequest::ACTION_RELEASE) stored.set_released(true);
  return SaveHost(records, stored);
}

}  // namespace

std::string FleetState::DeviceKey(const std::string& host, const v1::Device& device) {
  return absl::StrCat(host, "/", IsUnique(device.uuid()) ? device.uuid() : device.id());
}

std::string FleetState::HostOf(const std::string& device_key) {
  return device_key.substr(0, device_key.rfind('/'));
}

// ---------------------------------------------------------------------------------------- sessions

bool FleetState::Lives(const FleetSession& session) const {
  const absl::Duration silent = SteadyNow() - session.last_seen;
  return silent <= std::min(kMissedBeats * options_.heartbeat, options_.lease);
}

absl::Status FleetState::ClaimHost(const Caller& caller, const std::string& host,
                                   std::optional<int64_t> revoked) {
  if (!caller.host.empty() && caller.host != host) {
    return ErrorWithReason(absl::StatusCode::kPermissionDenied, "HOST_BOUND",
                           absl::StrCat("host_uuid: the token is for the host ", caller.host,
                                        " only; give each host its own"));
  }
  auto [it, added] = hosts_.try_emplace(host);
  HostEntry& entry = it->second;
  if (added || entry.released || revoked == entry.token) {
    entry.trusted = entry.released = false;  // trust was in the old one
    entry.token = caller.token;
  }
  if (entry.token == caller.token) {
    ++entry.claims;  // until it is written, or could not be
    return absl::OkStatus();
  }
  LogEvent(
      Severity::kWarning, "foreign_host",
      {{"host", host}, {"token", caller.token}, {"owner", entry.token}, {"peer", caller.peer}});
  return ErrorWithReason(
      absl::StatusCode::kPermissionDenied, "HOST_BOUND",
      absl::StrCat("host_uuid: ", host,
                   " belongs to another token; use that one, have it revoked, or let an "
                   "administrator release the host: heddle devices release ",
                   host));
}

absl::Status FleetState::CheckOwners(const FleetSession& session) const {
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

void FleetState::EndSession(const std::string& id) {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  for (const auto& [name, key] : it->second.devices) {
    DeviceEntry& device = devices_[key];
    if (device.session != id) continue;
    device.session.clear();
    *device.info.mutable_last_seen_time() = ToProto(Now() - (SteadyNow() - it->second.last_seen));
    Refresh(device);
  }
  sessions_.erase(it);
}

void FleetState::EndSessionsBefore(const FleetSession& session) {
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

const v1::FleetDevice& FleetState::TakeDevice(const FleetSession& session, const v1::Device& device,
                                              const std::string& hostname) {
  const std::string& model_name = device.target().name();
  bool abandoned = true;
  if (const DeviceModels::Model* old = models_.Find(model_name); old != nullptr && !old->known()) {
    for (const auto& [key, entry] : devices_) {
      abandoned &= !(entry.usable && entry.info.device().target().name() == model_name);
    }
  }
  const DeviceModels::Model& model = models_.Learn(device, abandoned);
  const std::string key = DeviceKey(session.host, device);
  DeviceEntry& entry = devices_[key];
  if (!entry.info.id().empty()) CountVersions(entry.info.device(), -1);
  CountVersions(device, 1);
  entry.session = session.id;
  entry.request_id.clear();
  v1::FleetDevice& info = entry.info;
  info.set_id(key);
  *info.mutable_device() = Believed(model, device);
  info.set_no_work_because(WhyNoWork(model, device.target()));
  info.set_hostname(hostname);
  info.set_generator(session.generator);
  *info.mutable_last_seen_time() = ToProto(Now());
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

void FleetState::Register(const Caller& caller, const v1::RegisterRequest& request,
                          const std::string& name, std::optional<int64_t> revoked,
                          const Reply<v1::RegisterResponse>& reply) {
  FleetSession session;
  session.id = name;
  session.host = request.host_uuid();
  session.boot_id = request.boot_id();
  session.instance = request.instance();
  session.token = caller.token;
  session.certificate = caller.certificate;
  session.generator = request.generator();
  session.last_seen = SteadyNow();
  std::set<std::string> keys;
  for (const v1::Device& device : request.devices()) {
    const std::string key = DeviceKey(session.host, device);
    session.devices[device.id()] = key;
    keys.insert(key);
  }
  absl::Status status;
  if (keys.size() != session.devices.size()) {
    status = WrongField("devices", "two of them have the same uuid");
  }
  if (status.ok()) status = ClaimHost(caller, session.host, revoked);
  if (status.ok()) status = CheckOwners(session);
  if (!status.ok()) return Send<v1::RegisterResponse>(reply, status);

  EndSessionsBefore(session);
  sessions_.emplace(session.id, session);
  std::vector<v1::FleetDevice> saved;
  for (const v1::Device& device : request.devices()) {
    saved.push_back(TakeDevice(session, device, request.hostname()));
  }
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
        absl::StrCat(saved.front().id(), ": ", saved.front().no_work_because()));
  }
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
  const auto stored = std::make_shared<v1::FleetHost>();
  stored->set_host_uuid(session.host);
  Write(
      [saved, stored, token = session.token](tuner::Records& records) {
        absl::Status written = StoreClaim(records, token, *stored);
        for (const v1::FleetDevice& device : saved) written.Update(SaveDevice(records, device));
        return written;
      },
      [=, this, id = session.id](const absl::Status& status) {
        BelieveHost(*stored, status, /*claim=*/true);
        if (!status.ok()) EndSession(id);  // its daemon does not know of it
        Send<v1::RegisterResponse>(
            reply, status.ok() ? absl::StatusOr<v1::RegisterResponse>(response) : status);
      },
      Persistence::kOnce);
  BlameForDeath(session);
  StartJobs();
}

// --------------------------------------------------------------------------------- administration

v1::FleetHost FleetState::Describe(const std::string& host) const {
  const HostEntry& entry = hosts_.at(host);
  v1::FleetHost described;
  described.set_host_uuid(host);
  described.set_token(entry.token);
  described.set_trusted(entry.trusted);
  described.set_released(entry.released);
  return described;
}

std::vector<v1::FleetHost> FleetState::Hosts() const {
  std::vector<v1::FleetHost> hosts;
  for (const auto& [name, entry] : hosts_) hosts.push_back(Describe(name));
  return hosts;
}

void FleetState::SetHost(const Caller& caller, const v1::SetHostRequest& request,
                         const Reply<v1::FleetHost>& reply) {
  const std::string& host = request.host_uuid();
  auto it = hosts_.find(host);
  if (it == hosts_.end()) {
    return Send<v1::FleetHost>(
        reply, absl::NotFoundError(absl::StrCat("no host ", host, " has registered")));
  }
  const auto stored = std::make_shared<v1::FleetHost>();
  WriteThenBelieve<v1::FleetHost>(
      [=, action = request.action(), token = it->second.token](tuner::Records& records) {
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

void FleetState::BelieveHost(const v1::FleetHost& stored, const absl::Status& status, bool claim) {
  const std::string& host = stored.host_uuid();
  HostEntry& entry = hosts_[host];
  if (claim) --entry.claims;
  if (status.ok()) entry.stored = stored;
  // A claim that is on its way is believed, so that nobody else makes one meanwhile.
  if (entry.claims > 0 && (!entry.stored || entry.stored->token() != entry.token)) return;
  if (!entry.stored) {
    hosts_.erase(host);
    return;
  }
  const bool release = entry.stored->released() && !entry.released;
  entry.token = entry.stored->token();
  entry.trusted = entry.stored->trusted();
  entry.released = entry.stored->released();
  if (!release) return;
  std::set<std::string> ended;
  for (const auto& [id, session] : sessions_) {
    if (session.host == host) ended.insert(id);
  }
  for (const std::string& id : ended) EndSession(id);
}

v1::DeviceModel FleetState::Describe(const DeviceModels::Model& model) const {
  v1::DeviceModel described;
  const std::string& name = model.device.target().name();
  described.set_name(name);
  described.set_source(model.source);
  *described.mutable_target() = model.device.target();
  auto use = uses_.find(name);
  described.set_devices(use == uses_.end() ? 0 : use->second.usable);
  return described;
}

std::vector<v1::DeviceModel> FleetState::Models() const {
  std::vector<v1::DeviceModel> models;
  for (const auto& [name, model] : models_.all()) models.push_back(Describe(*model));
  return models;
}

absl::StatusOr<v1::Device> FleetState::DeviceToPin(const v1::PinModelRequest& request) const {
  const std::string& name = request.name();
  const DeviceModels::Model* model = models_.Find(name);
  auto like = devices_.find(request.device());
  if (model == nullptr) {
    return absl::NotFoundError(absl::StrCat("no device \"", name,
                                            "\" has registered here; `heddle devices models` ",
                                            "lists those that have"));
  }
  if (!request.device().empty() &&
      (like == devices_.end() || like->second.info.device().target().name() != name)) {
    return WrongField("device", absl::StrCat("there is no device ", request.device(),
                                             " of the model \"", name, "\""));
  }
  v1::Device device = request.device().empty() ? model->device : like->second.info.device();
  v1::Target& target = *device.mutable_target();
  if (request.peak_gflops() > 0) target.set_peak_gflops(request.peak_gflops());
  if (request.memory_gbs() > 0) target.set_memory_gbs(request.memory_gbs());
  if (!request.unpin() && (target.peak_gflops() <= 0 || target.memory_gbs() <= 0)) {
    return WrongField(target.peak_gflops() <= 0 ? "peak_gflops" : "memory_gbs",
                      "must be given, as the device does not say it");
  }
  return device;
}

void FleetState::PinModel(const Caller& caller, const v1::PinModelRequest& request,
                          const Reply<v1::DeviceModel>& reply) {
  const auto device = DeviceToPin(request);
  if (!device.ok()) return Send<v1::DeviceModel>(reply, device.status());
  // A pin that gives some of the rates keeps the others as they are, which must be known.
  if (!pinning_.insert(request.name()).second) {
    return Send<v1::DeviceModel>(
        reply, absl::AbortedError(absl::StrCat("another pin of \"", request.name(),
                                               "\" is being written: try again")));
  }
  Write(
      [device = *device, request](tuner::Records& records) {
        return request.unpin() ? DeletePin(records, request.name()) : SavePin(records, device);
      },
      [=, this, device = *device](const absl::Status& status) {
        pinning_.erase(request.name());
        if (!status.ok()) return Send<v1::DeviceModel>(reply, status);
        if (request.unpin()) {
          models_.Unpin(request.name());
        } else {
          models_.Pin(device);
        }
        const v1::DeviceModel now = BelieveAgain(request.name());
        LogEvent(Severity::kInfo, request.unpin() ? "model_unpinned" : "model_pinned",
                 {{"model", request.name()},
                  {"gflops", now.target().peak_gflops()},
                  {"gbs", now.target().memory_gbs()},
                  {"token", caller.token},
                  {"peer", caller.peer}});
        StartJobs();
        Send<v1::DeviceModel>(reply, now);
      },
      Persistence::kOnce);
}

v1::DeviceModel FleetState::BelieveAgain(const std::string& name) {
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
