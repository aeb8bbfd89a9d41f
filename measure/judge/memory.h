// Whether a workload fits the memory of a device, judged once for everybody who has to say so.
#ifndef HEDDLE_MEASURE_JUDGE_MEMORY_H_
#define HEDDLE_MEASURE_JUDGE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::measure {

// ResourceExhausted, naming shape and figures, when measuring `program` takes more than what can be
// used of `memory_bytes` (0 = not known: everything fits). What is free at the moment the device
// itself says, when buffers are allocated (validate.cc).
absl::Status CheckMemory(const search_space::TensorProgram& program, const std::string& device,
                         int64_t memory_bytes);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_MEMORY_H_
