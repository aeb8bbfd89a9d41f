// The implementations behind OpenDevice, one a driver.
#ifndef HEDDLE_MEASURE_DEVICE_DRIVERS_H_
#define HEDDLE_MEASURE_DEVICE_DRIVERS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "measure/device/device.h"

namespace heddle::measure {

// NotFound or Unavailable say what is missing and how to get it.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index);
absl::StatusOr<std::unique_ptr<Device>> OpenOpenClDevice(int index);
// The first OpenCL device, misbehaving as the JSON file named by HEDDLE_FAKE_DEVICE says.
absl::StatusOr<std::unique_ptr<Device>> OpenFakeDevice();

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_DRIVERS_H_
