#ifdef HEDDLE_WITH_CUDA
#include "measure/device/cuda/cuda_driver.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle::measure {

absl::StatusOr<const CudaDriver*> CudaDriver::Load() {
  absl::StatusOr<DynLib> library = DynLib::Open("libcuda.so.1");
  if (!library.ok()) {
    return absl::UnavailableError(
        absl::StrCat("no NVIDIA driver: ", library.status().message(),
                     "; install one, or start the container with its GPUs (--gpus all)"));
  }
  std::unique_ptr<CudaDriver> driver(new CudaDriver(*std::move(library)));
#define HEDDLE_TEXT(name) #name
#define HEDDLE_BIND(name)                                                               \
  if (absl::Status s = driver->library_.Bind(HEDDLE_TEXT(name), driver->name); !s.ok()) \
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver is too old: ", s.message()));
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_BIND)
#undef HEDDLE_BIND
#undef HEDDLE_TEXT
  if (absl::Status s = driver->library_.Bind("cuEventElapsedTime", driver->elapsed_time); !s.ok()) {
    return absl::UnavailableError(s.message());
  }
  if (!driver->library_.Bind("cuTensorMapEncodeTiled", driver->encode_tensor_map).ok()) {
    driver->encode_tensor_map = nullptr;
  }
  CUresult result = driver->cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) {
    return absl::UnavailableError("the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES?)");
  }
  if (result != CUDA_SUCCESS) {
    return absl::UnavailableError(driver->Check(result, "cuInit").message());
  }
  return driver.release();  // lives as long as the process, as the driver's own state does
}

absl::StatusOr<const CudaDriver*> CudaDriver::Get() {
  static const absl::StatusOr<const CudaDriver*> driver = Load();
  return driver;
}

absl::Status CudaDriver::Check(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  const std::string message =
      absl::StrCat(what, ": ", name != nullptr ? name : "unknown CUDA error", " (",
                   static_cast<int>(result), ") ", text != nullptr ? text : "");
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_LAUNCH_FAILED:
      return absl::AbortedError(message);
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return absl::ResourceExhaustedError(message);
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return absl::DeadlineExceededError(message);
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return absl::UnavailableError(message);
    default:
      return absl::InvalidArgumentError(message);
  }
}

// Constants of nvml.h, which toolkits do not always bring.
namespace {
constexpr int kSmClock = 1;  // NVML_CLOCK_SM
}  // namespace

bool IsThrottled(unsigned long long reasons) {
  // Hardware slowdown, software and hardware thermal slowdown, power brake.
  return (reasons & (0x08 | 0x20 | 0x40 | 0x80)) != 0;
}

std::optional<Nvml> Nvml::Open(const std::string& pci_bus_id) {
  absl::StatusOr<DynLib> library = DynLib::Open("libnvidia-ml.so.1");
  if (!library.ok()) return std::nullopt;
  Nvml nvml(*std::move(library));
  int (*init)() = nullptr;
  int (*find)(const char*, Handle*) = nullptr;
  const DynLib& lib = nvml.library_;
  if (!lib.Bind("nvmlInit_v2", init).ok() || init() != 0 ||
      !lib.Bind("nvmlDeviceGetHandleByPciBusId_v2", find).ok() ||
      find(pci_bus_id.c_str(), &nvml.device_) != 0 ||
      !lib.Bind("nvmlDeviceGetClockInfo", nvml.clock_).ok() ||
      !lib.Bind("nvmlDeviceGetMaxClockInfo", nvml.max_clock_).ok() ||
      !lib.Bind("nvmlDeviceGetCurrentClocksThrottleReasons", nvml.throttle_).ok() ||
      !lib.Bind("nvmlDeviceGetComputeRunningProcesses_v3", nvml.processes_).ok() ||
      !lib.Bind("nvmlSystemGetDriverVersion", nvml.version_).ok()) {
    return std::nullopt;
  }
  if (!lib.Bind("nvmlDeviceGetEnforcedPowerLimit", nvml.power_limit_).ok()) {
    nvml.power_limit_ = nullptr;
  }
  return nvml;
}

DeviceState Nvml::State() const {
  DeviceState state;
  unsigned value = 0;
  if (clock_(device_, kSmClock, &value) == 0) state.sm_clock_mhz = value;
  state.max_sm_clock_mhz = max_sm_clock_mhz();
  unsigned long long reasons = 0;
  if (throttle_(device_, &reasons) == 0) state.throttled = IsThrottled(reasons);
  // Without room for answers it only counts; this process is one of them where it is visible.
  unsigned count = 0;
  processes_(device_, &count, nullptr);
  state.other_processes = std::max(0, static_cast<int>(count) - 1);
  return state;
}

double Nvml::max_sm_clock_mhz() const {
  unsigned value = 0;
  return max_clock_(device_, kSmClock, &value) == 0 ? value : 0;
}

int64_t Nvml::power_limit_w() const {
  unsigned milliwatts = 0;
  if (power_limit_ == nullptr || power_limit_(device_, &milliwatts) != 0) return 0;
  return std::lround(milliwatts / 1e3);
}

std::string Nvml::driver_version() const {
  char text[96] = "";
  return version_(text, sizeof text) == 0 ? text : "";
}

}  // namespace heddle::measure
#endif  // HEDDLE_WITH_CUDA
