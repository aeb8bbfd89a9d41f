// One owner a device, among all processes of this machine.
#ifndef HEDDLE_MEASURE_DEVICE_DEVICE_LOCK_H_
#define HEDDLE_MEASURE_DEVICE_DEVICE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "measure/device/device_info.h"

namespace heddle::measure {

// Held while any process has the descriptor open: the supervisor, or a worker of it that has not
// ended yet.
class DeviceLock {
 public:
  // A lock on a file named by the device's UUID (its id where it has none) in /tmp, or in
  // $HEDDLE_LOCK_FOLDER. Unavailable names the process that has the device.
  static absl::StatusOr<DeviceLock> Acquire(const DeviceInfo& device);
  ~DeviceLock();
  DeviceLock(DeviceLock&& other) noexcept;
  DeviceLock& operator=(DeviceLock&& other) noexcept;

  int fd() const { return fd_; }

 private:
  explicit DeviceLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_DEVICE_LOCK_H_
