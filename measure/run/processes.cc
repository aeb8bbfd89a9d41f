#include "measure/run/processes.h"

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

KeptProcesses::KeptProcesses() = default;
KeptProcesses::~KeptProcesses() = default;

std::unique_ptr<Processes> KeptProcesses::Take(const std::string& device, int compilers) {
  if (processes_ != nullptr &&
      (processes_->device != device || processes_->compilers != compilers)) {
    processes_.reset();
  }
  return std::move(processes_);
}

void KeptProcesses::Keep(std::unique_ptr<Processes> processes) {
  processes_ = std::move(processes);
}

}  // namespace heddle::measure
