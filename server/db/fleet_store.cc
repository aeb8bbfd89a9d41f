#include "server/db/fleet_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "proto/values.h"
#include "server/db/convert.h"

namespace heddle::server {

using tuner::Records;

namespace {

constexpr char kHosts[] = "SELECT host, token, trusted, released FROM fleet_host";

v1::FleetHost HostIn(const Cursor& row) {
  v1::FleetHost host;
  host.set_host_uuid(row.Text(0));
  host.set_token(row.Int(1));
  host.set_trusted(row.Int(2) != 0);
  host.set_released(row.Int(3) != 0);
  return host;
}

// `known`: what becomes of a row that there is.
absl::Status AddDevice(Records& records, const v1::FleetDevice& device, const char* known) {
  return records.database().Run(
      absl::StrCat("INSERT INTO fleet_device (id, device, hostname, state, generator, "
                   "last_seen_us) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET ",
                   known),
      device.name(), ToJson(device.device()), device.hostname(), int{device.state()},
      device.generator(), absl::ToUnixMicros(TimeOf(device.last_seen_time())));
}

}  // namespace

absl::Status SaveHost(Records& records, const v1::FleetHost& host) {
  return records.database().Run("INSERT OR REPLACE INTO fleet_host VALUES (?, ?, ?, ?)",
                                host.host_uuid(), host.token(), int{host.trusted()},
                                int{host.released()});
}

absl::StatusOr<v1::FleetHost> LoadHost(Records& records, const std::string& host) {
  Cursor row = records.database().Query(absl::StrCat(kHosts, " WHERE host = ?"), host);
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  if (!found) return absl::NotFoundError(absl::StrCat("no host ", host, " has registered"));
  return HostIn(row);
}

absl::StatusOr<std::vector<v1::FleetHost>> LoadHosts(Records& records) {
  std::vector<v1::FleetHost> hosts;
  Cursor row = records.database().Query(kHosts);
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { hosts.push_back(HostIn(row)); }));
  return hosts;
}

absl::StatusOr<std::optional<int64_t>> RevokedOwner(Records& records, const std::string& host,
                                                    absl::Time now) {
  auto revoked = records.database().QueryInt(
      "SELECT t.id FROM fleet_host h JOIN token t ON t.id = h.token "
      "WHERE h.host = ? AND (t.revoked_us > 0 OR (t.expires_us > 0 AND t.expires_us <= ?))",
      host, absl::ToUnixMicros(now));
  if (absl::IsNotFound(revoked.status())) return std::optional<int64_t>();
  HEDDLE_RETURN_IF_ERROR(revoked);
  return std::optional<int64_t>(*revoked);
}

absl::Status SavePin(Records& records, const v1::Device& device) {
  return records.database().Run("INSERT OR REPLACE INTO fleet_model VALUES (?, ?)",
                                device.target().name(), ToJson(device));
}

absl::Status DeletePin(Records& records, const std::string& model) {
  return records.database().Run("DELETE FROM fleet_model WHERE name = ?", model);
}

absl::StatusOr<std::vector<v1::Device>> LoadPins(Records& records) {
  std::vector<v1::Device> pins;
  Cursor row = records.database().Query("SELECT device FROM fleet_model ORDER BY name");
  HEDDLE_RETURN_IF_ERROR(
      row.ForEachRow([&] { return FromJson(row.Text(0), pins.emplace_back()); }));
  return pins;
}

absl::Status AddDeviceTime(Records& records, const std::string& tenant, int64_t day,
                           double seconds) {
  HEDDLE_RETURN_IF_ERROR(records.database().Run("DELETE FROM tenant_use WHERE day < ?", day));
  return records.database().Run(
      "INSERT INTO tenant_use VALUES (?, ?, ?) ON CONFLICT (tenant, day) DO UPDATE SET "
      "device_s = device_s + excluded.device_s",
      tenant, day, seconds);
}

absl::StatusOr<std::vector<DeviceTime>> LoadDeviceTime(Records& records, int64_t day) {
  std::vector<DeviceTime> times;
  Cursor row =
      records.database().Query("SELECT tenant, device_s FROM tenant_use WHERE day = ?", day);
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { times.push_back({row.Text(0), row.Real(1)}); }));
  return times;
}

absl::Status SaveDevice(Records& records, const v1::FleetDevice& device) {
  return AddDevice(records, device,
                   "device = excluded.device, hostname = excluded.hostname, "
                   "generator = excluded.generator, last_seen_us = excluded.last_seen_us");
}

absl::Status SaveDeviceState(Records& records, const v1::FleetDevice& device) {
  return AddDevice(records, device, "state = excluded.state");
}

absl::Status DeleteDevice(Records& records, const std::string& id) {
  return records.database().Run("DELETE FROM fleet_device WHERE id = ?", id);
}

absl::StatusOr<std::vector<v1::FleetDevice>> LoadDevices(Records& records) {
  std::vector<v1::FleetDevice> devices;
  Cursor row = records.database().Query(
      "SELECT id, device, hostname, state, generator, last_seen_us FROM fleet_device ORDER BY id");
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
    v1::FleetDevice device;
    device.set_name(row.Text(0));
    // It will tell again what it is.
    if (!FromJson(row.Text(1), *device.mutable_device()).ok()) return;
    device.set_hostname(row.Text(2));
    device.set_state(static_cast<v1::FleetDevice::State>(row.Int(3)));
    device.set_generator(static_cast<int32_t>(row.Int(4)));
    *device.mutable_last_seen_time() = ToProto(absl::FromUnixMicros(row.Int(5)));
    device.mutable_worker()->set_device(device.device().id());
    device.mutable_worker()->set_state(v1::WorkerStatus::STATE_GONE);
    devices.push_back(std::move(device));
  }));
  return devices;
}

absl::StatusOr<int64_t> NextEpoch(Records& records) {
  HEDDLE_RETURN_IF_ERROR(records.database().Run("UPDATE server SET epoch = epoch + 1"));
  return records.database().QueryInt("SELECT epoch FROM server");
}

}  // namespace heddle::server
