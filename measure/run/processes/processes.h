// The processes of a measurer, and what they use: they outlive it where they are kept for the next.
#ifndef HEDDLE_MEASURE_RUN_PROCESSES_PROCESSES_H_
#define HEDDLE_MEASURE_RUN_PROCESSES_PROCESSES_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/process/subprocess.h"
#include "measure/device/backend.h"
#include "measure/device/device_info.h"
#include "measure/device/device_lock.h"
#include "measure/run/processes/compile_pool.h"

namespace heddle::measure {

struct Processes {
  // `lock`: nullopt where the caller of the measurer holds it.
  Processes(const DeviceInfo& device, int compilers, absl::Duration compile_limit,
            std::optional<DeviceLock> lock);

  // Of the processes that use the driver.
  std::vector<std::string> environment() const;

  const std::string device;  // its id
  const int compilers;
  StopSignal stop;   // ends all of them, for good
  SharedFlag hurry;  // the worker's: MustHurry
  std::optional<DeviceLock> lock;
  const std::unique_ptr<Scratch> scratch;
  CompilePool pool;
  bool warmed_up = false;              // the pool
  std::unique_ptr<Subprocess> worker;  // while no measurer has it; nullptr = to be started
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_PROCESSES_PROCESSES_H_
