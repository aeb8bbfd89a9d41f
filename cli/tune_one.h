// One workload on one device, until a limit or an interrupt.
#ifndef HEDDLE_CLI_TUNE_ONE_H_
#define HEDDLE_CLI_TUNE_ONE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "cli/tuned.h"
#include "measure/device/device_info.h"
#include "measure/run/processes/kept_processes.h"
#include "tuner/records/records.h"

namespace heddle::cli {

struct TuneFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  int trials = 200, plateau = 0;
  double seconds = 0;
  uint64_t seed = 1;
  std::string search = "evolutionary", progress = "text", l2, workloads, db, plot;
  bool json = false, no_finals = false;
  int since_improvement = 0;  // trials of turns before, for `plateau`
};

// `device` is one of `devices` that are tuned on at a time: it compiles on twice its part of the
// cores, up to a limit.
absl::StatusOr<Tuned> TuneOne(const TuneFlags& flags, const Workload& program,
                              const measure::DeviceInfo& device, size_t devices,
                              tuner::Records& records, measure::KeptProcesses& kept);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_TUNE_ONE_H_
