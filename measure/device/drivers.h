// What the rows of backend.h are made of, one group a driver.
#ifndef HEDDLE_MEASURE_DEVICE_DRIVERS_H_
#define HEDDLE_MEASURE_DEVICE_DRIVERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/codegen/codegen.h"
#include "measure/device/backend.h"
#include "measure/device/device.h"
#include "measure/device/device_info.h"
#include "measure/device/scratch.h"

namespace heddle::measure {

// NotFound or Unavailable say what is missing and how to get it. Devices that exist and cannot be
// used are listed with the reason; where there is no driver, one entry says why.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index);
std::vector<DeviceInfo> DetectCudaDevices();

inline constexpr char kOpenClCompileOptions[] = "-cl-std=CL1.2";
// What is scripted takes as long as the script says: nothing is gained by optimising it, and PoCL's
// compiler takes half of the time so.
inline constexpr char kFakeCompileOptions[] = "-cl-std=CL1.2 -cl-opt-disable";
absl::StatusOr<std::unique_ptr<Device>> OpenOpenClDevice(int index);
std::vector<DeviceInfo> DetectOpenClDevices();
// As Backend::prepare: PoCL reads its library of functions, which takes three times as long as to
// compile a small kernel. Other drivers' processes must not be forked.
Compiling PrepareOpenClCompiler(const std::string& device_id);
// Source to a binary that Device::Load takes. With PoCL only the first kernel that a process
// compiles is complete; later ones are compiled again at their first launch, for some 0.1 s.
// InvalidArgument carries the compiler's log; Unavailable: no such device.
absl::StatusOr<std::string> CompileOpenCl(const std::string& device_id, const KernelSource& source,
                                          const char* options = kOpenClCompileOptions);
std::unique_ptr<Scratch> MakePoclFolder();

// The first OpenCL device, misbehaving as the JSON file named by HEDDLE_FAKE_DEVICE says; listed
// where that is set.
absl::StatusOr<std::unique_ptr<Device>> OpenFakeDevice(int index);
std::vector<DeviceInfo> DetectFakeDevices();
absl::StatusOr<std::string> CompileFake(const KernelSource& source);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_DRIVERS_H_
