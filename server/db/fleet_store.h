// Hosts, their devices and pinned models in the database. Functions that write run within a write
// of the Store.
#ifndef HEDDLE_SERVER_DB_FLEET_STORE_H_
#define HEDDLE_SERVER_DB_FLEET_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heddle/v1/fleet.pb.h"
#include "tuner/records/records.h"

namespace heddle::server {

absl::Status SaveHost(tuner::Records& records, const v1::FleetHost& host);
// NotFound where it has never registered.
absl::StatusOr<v1::FleetHost> LoadHost(tuner::Records& records, const std::string& host);
absl::StatusOr<std::vector<v1::FleetHost>> LoadHosts(tuner::Records& records);
// The token that the host belongs to, where that is valid no more.
absl::StatusOr<std::optional<int64_t>> RevokedOwner(tuner::Records& records,
                                                    const std::string& host, absl::Time now);

// As it registers; a device that is known keeps the state that it was given.
absl::Status SaveDevice(tuner::Records& records, const v1::FleetDevice& device);
// The state that an administrator gives to it; all of it where it is not known.
absl::Status SaveDeviceState(tuner::Records& records, const v1::FleetDevice& device);
absl::StatusOr<std::vector<v1::FleetDevice>> LoadDevices(tuner::Records& records);
absl::Status DeleteDevice(tuner::Records& records, const std::string& id);

// Advances and returns the server's epoch.
absl::StatusOr<int64_t> NextEpoch(tuner::Records& records);

// What an administrator says of the model.
absl::Status SavePin(tuner::Records& records, const v1::Device& device);
absl::Status DeletePin(tuner::Records& records, const std::string& model);
absl::StatusOr<std::vector<v1::Device>> LoadPins(tuner::Records& records);

// Adds to the seconds of devices that a tenant has used on a day (since 1970, UTC), and forgets
// earlier days.
absl::Status AddDeviceTime(tuner::Records& records, const std::string& tenant, int64_t day,
                           double seconds);
struct DeviceTime {
  std::string tenant;
  double seconds = 0;
};
absl::StatusOr<std::vector<DeviceTime>> LoadDeviceTime(tuner::Records& records, int64_t day);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_FLEET_STORE_H_
