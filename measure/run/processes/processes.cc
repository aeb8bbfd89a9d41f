#include "measure/run/processes/processes.h"

#include <utility>

namespace heddle::measure {

Processes::Processes(const DeviceInfo& device, int compilers, absl::Duration compile_limit,
                     std::optional<DeviceLock> lock)
    : device(device.id),
      compilers(compilers),
      lock(std::move(lock)),
      scratch(BackendOf(device).scratch ? BackendOf(device).scratch() : nullptr),
      pool(device, {compilers, compile_limit, KernelCache::DefaultFolder(), environment()}, stop) {}

std::vector<std::string> Processes::environment() const {
  return scratch != nullptr ? scratch->environment() : std::vector<std::string>();
}

}  // namespace heddle::measure
