// A measurer on a device of this machine.
#ifndef HEDDLE_MEASURE_RUN_START_MEASURER_H_
#define HEDDLE_MEASURE_RUN_START_MEASURER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "measure/device/device_info.h"
#include "measure/run/measurer.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::measure {

// Starts compilers and the device's worker for `program`. Uploads inputs and runs the naive
// reference once. ResourceExhausted when the workload does not fit the device's memory (checked
// before anything is allocated); Unavailable when the device is in use by another tuner (its owner
// is named) or fails its canary.
absl::StatusOr<std::unique_ptr<Measurer>> StartMeasurer(
    std::shared_ptr<const search_space::TensorProgram> program, const DeviceInfo& device,
    const MeasureOptions& options);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_START_MEASURER_H_
