#include "measure/run/processes/kept_processes.h"

#include <utility>

#include "measure/run/processes/processes.h"

namespace heddle::measure {

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
