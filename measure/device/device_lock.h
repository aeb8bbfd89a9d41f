// One owner a device, among all processes of this machine.
#ifndef HEDDLE_MEASURE_DEVICE_DEVICE_LOCK_H_
#define HEDDLE_MEASURE_DEVICE_DEVICE_LOCK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/device/device_info.h"

namespace heddle::measure {

// Held while any process has the descriptors open: the supervisor, or a worker of it that has not
// ended yet.
class DeviceLock {
 public:
  // A lock on a file named by the device's UUID (its id where it has none) in $HEDDLE_LOCK_FOLDER,
  // or else in /run/lock/heddle, or in /tmp where that neither is there nor can be made; and on an
  // NVIDIA GPU's device node, which is the same in containers and wherever /tmp and /run are not.
  // Unavailable names the process that has the device, or says what stands in the file's place.
  static absl::StatusOr<DeviceLock> Acquire(const DeviceInfo& device);
  ~DeviceLock();
  DeviceLock(DeviceLock&& other) noexcept;
  DeviceLock& operator=(DeviceLock&& other) noexcept;

  // The file's, then the node's where there is one.
  const std::vector<int>& fds() const { return fds_; }

 private:
  DeviceLock() = default;
  std::vector<int> fds_;
};

// "/dev/nvidia3" for the GPU of that UUID; empty where the driver lists none. `gpus` is the folder
// in which it does.
std::string NvidiaNode(const std::string& uuid,
                       const std::string& gpus = "/proc/driver/nvidia/gpus");

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_DEVICE_LOCK_H_
