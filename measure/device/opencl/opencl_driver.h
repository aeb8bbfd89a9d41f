// What OpenCL's drivers are asked through the ICD loader: which devices there are and what they
// can, and what an error means.
#ifndef HEDDLE_MEASURE_DEVICE_OPENCL_OPENCL_DRIVER_H_
#define HEDDLE_MEASURE_DEVICE_OPENCL_OPENCL_DRIVER_H_

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "measure/device/device_info.h"

namespace heddle::measure {

// ResourceExhausted where memory is short, Unavailable where the device is gone, else
// InvalidArgument; `what` was tried.
absl::Status CheckCl(cl_int code, absl::string_view what);

// 0 where the driver does not know.
template <typename T>
T GetCl(cl_device_id device, cl_device_info what) {
  T value{};
  clGetDeviceInfo(device, what, sizeof value, &value, nullptr);
  return value;
}

// opencl:index, counted over all platforms; Unavailable says what there is, or how to get one.
absl::StatusOr<cl_device_id> FindClDevice(int index);
// Is it a processor, by PoCL?
bool IsPocl(cl_device_id device);
// Measures the memory's bandwidth of a processor, which takes part of a second.
DeviceInfo DescribeClDevice(cl_device_id device, int index);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_OPENCL_OPENCL_DRIVER_H_
