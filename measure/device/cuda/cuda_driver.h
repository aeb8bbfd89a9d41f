// The CUDA driver and NVIDIA's management library, both loaded at run time: cuda.h is needed to
// build, nothing to start. Functions carry the versioned names that cuda.h gives them.
#ifndef HEDDLE_MEASURE_DEVICE_CUDA_CUDA_DRIVER_H_
#define HEDDLE_MEASURE_DEVICE_CUDA_CUDA_DRIVER_H_

#include <cuda.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dynlib.h"
#include "measure/device/device_info.h"

namespace heddle::measure {

// clang-format off
#define HEDDLE_CUDA_FUNCTIONS(X)                                                                 \
  X(cuInit)                                                                                      \
  X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet) \
      X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)          \
          X(cuDeviceGetPCIBusId) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)        \
              X(cuCtxSetCurrent) X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize)     \
                  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventSynchronize)      \
                      X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemAllocHost)               \
                          X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)             \
                              X(cuMemcpyDtoDAsync) X(cuMemsetD16Async)                           \
                              X(cuMemsetD32Async) X(cuModuleLoadData)                            \
                                  X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute) \
                                      X(cuFuncSetAttribute) X(cuLaunchKernel) X(cuGraphCreate)   \
                                          X(cuGraphDestroy) X(cuGraphAddKernelNode)              \
                                              X(cuGraphInstantiate) X(cuGraphUpload)             \
                                                  X(cuGraphLaunch) X(cuGraphExecDestroy)
// clang-format on

// The driver's entry points; members are named as in cuda.h.
class CudaDriver {
 public:
  // Loads libcuda.so.1 and calls cuInit, once a process. Unavailable says why there is none.
  static absl::StatusOr<const CudaDriver*> Get();

#define HEDDLE_FIELD(name) decltype(&::name) name = nullptr;
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_FIELD)
#undef HEDDLE_FIELD
  // Not by the name of cuda.h, which drivers before 12.8 do not have.
  CUresult (*elapsed_time)(float*, CUevent, CUevent) = nullptr;
  // Null in drivers before 12.0, which know no device that needs it.
  decltype(&::cuTensorMapEncodeTiled) encode_tensor_map = nullptr;

  // OK, or what OutcomeOf expects: Aborted for faults of the kernel, which end the context.
  absl::Status Check(CUresult result, const std::string& what) const;

 private:
  explicit CudaDriver(DynLib library) : library_(std::move(library)) {}
  static absl::StatusOr<const CudaDriver*> Load();
  DynLib library_;
};

// Do these reasons, of nvmlDeviceGetCurrentClocksThrottleReasons, say that the device cannot keep
// up what it is made for? Its power limit, at which products of 16-bit matrices run all the time,
// is none of them.
bool IsThrottled(unsigned long long reasons);

// Clocks and users of one GPU. Everything is optional: containers often lack the library.
class Nvml {
 public:
  // nullopt when the library or the device is not there.
  static std::optional<Nvml> Open(const std::string& pci_bus_id);

  DeviceState State() const;
  std::string driver_version() const;  // "580.65.06"; empty when unknown
  double max_sm_clock_mhz() const;     // 0 when unknown
  int64_t power_limit_w() const;       // as it is set now; 0 when unknown

 private:
  using Handle = struct nvmlDevice_st*;
  explicit Nvml(DynLib library) : library_(std::move(library)) {}

  DynLib library_;
  Handle device_ = nullptr;
  int (*clock_)(Handle, int, unsigned*) = nullptr;
  int (*max_clock_)(Handle, int, unsigned*) = nullptr;
  int (*throttle_)(Handle, unsigned long long*) = nullptr;
  int (*processes_)(Handle, unsigned*, void*) = nullptr;
  int (*version_)(char*, unsigned) = nullptr;
  int (*power_limit_)(Handle, unsigned*) = nullptr;  // of newer drivers and boards with a limit
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_CUDA_CUDA_DRIVER_H_
