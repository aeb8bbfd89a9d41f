// The fleet: sessions of daemons, their devices, and what is believed of the devices' models.
#ifndef HEDDLE_SERVER_FLEET_DEVICES_DEVICES_H_
#define HEDDLE_SERVER_FLEET_DEVICES_DEVICES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "heddle/v1/fleet.pb.h"
#include "server/db/trust/auth.h"
#include "server/fleet/devices/device_models.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "server/metrics/metrics.h"
#include "tuner/records/records.h"

namespace heddle::server {

// A daemon, from its registration on.
struct FleetSession {
  std::string id, host, boot_id, instance;
  int64_t token = 0;        // whose it is
  std::string certificate;  // and with what it came
  int generator = 0;
  SteadyTime last_seen;
  std::set<int64_t> running;
  std::map<std::string, std::string> devices;  // Device.id to the id in the fleet
};

struct DeviceEntry {
  v1::FleetDevice info;
  std::string session;  // "" = gone
  bool usable = false;  // it can take work, as far as was noticed

  const std::string& model() const { return info.device().target().name(); }
};

// FleetDevice.name, which is what a device is known by, and the host in it.
std::string DeviceKey(const std::string& host, const v1::Device& device);
std::string HostOf(const std::string& device_key);

tuner::Environment EnvironmentOf(const v1::Device& device, v1::L2Policy l2);

class Devices {
 public:
  Devices(const FleetOptions& options, Metrics& metrics, Changes& changes)
      : options_(options), metrics_(metrics), changes_(changes) {}

  // In place of what was believed: what is stored, none of it in a session.
  void Load(const std::vector<v1::Device>& pins, const std::vector<v1::FleetDevice>& devices);

  // -------------------------------------------------------------------------------------- sessions

  // The caller's; it has been heard of with that. FailedPrecondition where it has none of that id.
  absl::StatusOr<FleetSession*> FindSession(const Caller& caller, const std::string& id);
  // nullptr: it has ended.
  const FleetSession* Session(const std::string& id) const;
  FleetSession* Session(const std::string& id);
  // Whether another living process has one of the session's devices: AlreadyExists.
  absl::Status CheckOwners(const FleetSession& session) const;
  // A daemon that may have what it registers, in place of earlier ones: its devices, to be stored.
  std::vector<v1::FleetDevice> Register(const FleetSession& session,
                                        const v1::RegisterRequest& request);
  void EndSession(const std::string& id);
  void EndSessionsOf(const std::string& host);
  // Nothing was heard of for so long that no late result is awaited.
  void EndSilentSessions();

  // --------------------------------------------------------------------------------------- devices

  // nullptr: not known.
  const DeviceEntry* Find(const std::string& key) const;
  // The session's device of that name; nullptr where it has none, or another session has it now.
  const DeviceEntry* Find(const FleetSession& session, const std::string& device) const;
  const std::map<std::string, DeviceEntry>& all() const { return devices_; }
  // As they are shown, without their jobs.
  std::vector<v1::FleetDevice> Describe() const;
  // Devices of the model that can take work.
  int Usable(const std::string& model) const;
  // By model, how many of its devices can take work.
  const std::map<std::string, int>& usable() const { return usable_; }

  // What a daemon says of its device.
  void TakeWorker(const FleetSession& session, const v1::WorkerStatus& worker);
  void SetState(const std::string& key, v1::FleetDevice::State state);
  // Notices which devices can take work no longer, or again.
  void Refresh();
  // Of each model the devices that have begun to take work since they were taken here last.
  const std::map<std::string, std::set<std::string>>& came() const { return came_; }
  std::set<std::string> TakeCame(const std::string& model);

  // Those that nobody has seen for so long that they are to be forgotten.
  std::vector<std::string> Old() const;
  void Forget(const std::string& key);

  // ---------------------------------------------------------------------------------------- models

  const DeviceModels& models() const { return models_; }
  const DeviceModels::Model& ModelOf(const DeviceEntry& device) const {
    return *models_.Find(device.model());
  }
  std::vector<v1::DeviceModel> DescribeModels() const;
  // What a pin says, or what is wrong with it.
  absl::StatusOr<v1::Device> DeviceToPin(const v1::PinModelRequest& request) const;
  // After that was written: what the model is now.
  v1::DeviceModel Pin(const v1::Device& device);
  v1::DeviceModel Unpin(const std::string& model);
  // Which versions no device of the model has any more: "driver", "compiler".
  std::vector<std::string> ChangedSince(const tuner::Environment& then) const;

 private:
  // What the devices of a model have, and how many of them.
  struct Versions {
    std::map<std::string, int> drivers, compilers;
  };

  bool CanWork(const DeviceEntry& device) const;
  void Refresh(DeviceEntry& device);
  bool Lives(const FleetSession& session) const;
  void EndSessionsBefore(const FleetSession& session);
  const v1::FleetDevice& TakeDevice(const FleetSession& session, const v1::Device& device,
                                    const std::string& hostname);
  // Of a device that registers (1), or is another one from now on (-1).
  void CountVersions(const v1::Device& device, int count);
  // What devices of a model are shown as, after what is believed of it has changed.
  v1::DeviceModel BelieveAgain(const std::string& model);
  v1::DeviceModel Describe(const DeviceModels::Model& model) const;

  const FleetOptions& options_;
  Metrics& metrics_;
  Changes& changes_;
  std::map<std::string, FleetSession> sessions_;
  std::map<std::string, DeviceEntry> devices_;
  std::map<std::string, int> usable_;                  // by model
  std::map<std::string, std::set<std::string>> came_;  // by model
  DeviceModels models_;
  std::map<std::string, Versions> versions_;  // by model
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_DEVICES_DEVICES_H_
