// Whether a workload may occupy a device.
#ifndef HEDDLE_SERVER_FLEET_JOBS_COST_H_
#define HEDDLE_SERVER_FLEET_JOBS_COST_H_

#include "absl/status/status.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::server {

// ResourceExhausted where the workload is too much for a device: its buffers, or the time of the
// naive program, with which every search begins.
absl::Status CheckCost(const search_space::TensorProgram& program,
                       const search_space::Target& target);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_JOBS_COST_H_
