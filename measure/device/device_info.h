// What is known of a device without opening it, and its state while it measures.
#ifndef HEDDLE_MEASURE_DEVICE_DEVICE_INFO_H_
#define HEDDLE_MEASURE_DEVICE_DEVICE_INFO_H_

#include <cstdint>
#include <string>

#include "search_space/ir/target.h"

namespace heddle::measure {

// A device as found on this machine.
struct DeviceInfo {
  std::string id;  // "cuda:0", "opencl:0", "fake:0"
  search_space::Target target;
  std::string uuid;      // stable across reboots where the driver gives one
  std::string driver;    // driver version
  std::string compiler;  // NVRTC or OpenCL platform version
  bool usable = true;
  std::string why_not;        // when not usable: the reason and the remedy
  int64_t power_limit_w = 0;  // of a GPU, as it is set now; 0 = unknown
};

// State of the device while it measured, for warnings and records.
struct DeviceState {
  double sm_clock_mhz = 0, max_sm_clock_mhz = 0;
  bool throttled = false;
  int other_processes = 0;  // other users of the device
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_DEVICE_INFO_H_
