// Which devices this machine has.
#ifndef HEDDLE_MEASURE_RUN_DETECT_H_
#define HEDDLE_MEASURE_RUN_DETECT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/device/device_info.h"

namespace heddle::measure {

// Every device found, usable or not, CUDA first. Detection happens in children, one an API, so that
// no driver's state enters this process and a driver that hangs or crashes hides only its own
// devices.
std::vector<DeviceInfo> ListDevices();
// "auto" (the first usable, CUDA before OpenCL), "cuda:N", "opencl:N". NotFound lists what exists.
absl::StatusOr<DeviceInfo> FindDevice(const std::string& id);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_DETECT_H_
