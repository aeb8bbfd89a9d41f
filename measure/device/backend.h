// The kinds of devices, one row each: whatever depends on the kind asks its row.
#ifndef HEDDLE_MEASURE_DEVICE_BACKEND_H_
#define HEDDLE_MEASURE_DEVICE_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/process/sandbox.h"
#include "measure/codegen/codegen.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/device_info.h"
#include "measure/device/scratch.h"

namespace heddle::measure {

class Device;

// Machine code of one kernel.
struct CompiledSource {
  std::string binary;         // what Device::Load takes
  std::string assembly;       // PTX; empty where there is none
  KernelResources resources;  // zeros where the compiler does not tell
};

// The text of an artefact's run.cc that speaks to the driver (tuner/artefact/launchers.cc).
struct LauncherText {
  const char* intro;   // above the common includes
  const char* driver;  // below the tables: struct Gpu
  const char* build;   // "run.cc -lcuda": the compiler's arguments
  bool loads_source;   // rather than the binary
};

// How a compiler process takes kernels.
enum class Compiling {
  kInTurn,      // one after the other
  kInChildren,  // each in a child that it forks, which then has all that is loaded
  kOnce,        // one, with which it ends
};

struct Backend {
  const char* name;       // before the number in ids: "cuda" in "cuda:0"
  search_space::Api api;  // and with it the dialect (codegen/dialects.h)
  // Both take the driver's state into this process: only children call them (ListDevices, workers).
  std::vector<DeviceInfo> (*detect)();
  absl::StatusOr<std::unique_ptr<Device>> (*open)(int index);
  // InvalidArgument carries the compiler's log, Unavailable says what is missing. May hang or
  // abort: compiler processes call it, and commands for a single kernel.
  absl::StatusOr<CompiledSource> (*compile)(const KernelSource& source, const DeviceInfo& device);
  // Loads what this process, a compiler, needs for all kernels of the device. Null: kInTurn, and
  // there is nothing to load ahead.
  Compiling (*prepare)(const std::string& device_id);
  // "NAME=value" of an environment in which its driver shows no device. Compilers get it, and no
  // device's file: a compiler that looks for a driver starts it, seconds on a host of many GPUs
  // where many do so at once. Null = it compiles by a device's driver.
  const char* hides_devices;
  // What a binary depends on besides its source and the compiler; null = binaries are not kept.
  std::string (*cache_key)(const DeviceInfo& device, const KernelLaunch& launch);
  std::unique_ptr<Scratch> (*scratch)();  // null = needs none; gives null when there can be none
  // The device's own file, "/dev/nvidia3", which is the same in every mount namespace and locked by
  // who measures; empty where it is not found. Null = there is none.
  std::string (*node)(const DeviceInfo& device);
  // Candidates run in the process that opens the device, on threads that the driver starts then.
  bool runs_in_process;
  // Adds what its driver and compiler read and write besides what all do (run/processes/confine.h).
  void (*allow)(SandboxRules& rules);
  std::vector<std::string> (*compile_options)();  // as a manifest tells them
  const char* source_suffix;                      // of files: ".cu"
  const char* binary_suffix;                      // ".cubin"
  const char* assembly_suffix;                    // ".ptx"; null = there is no assembly
  LauncherText launcher;
};

// The rows: cuda/cuda_backend.cc, and opencl/opencl_backend.cc, which has the fake device's, too.
extern const Backend kCudaBackend, kOpenClBackend, kFakeBackend;
// In the order in which devices are listed.
absl::Span<const Backend* const> Backends();
// Of "cuda:0"; null where no back end has that name.
const Backend* FindBackend(const std::string& device_id);
// Of a device's id; without one, as of devices that are only described, the first of its API.
const Backend& BackendOf(const DeviceInfo& device);

// Opens "cuda:N", "opencl:N" or "fake:0" in this process; only worker processes do this.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& id);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_BACKEND_H_
