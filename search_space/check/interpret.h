// An executable definition of the statement IR, for small shapes: slow, and merciless about what a
// GPU lets pass.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_H_
#define HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/tensor_values.h"

namespace heddle::search_space {

struct InterpretOptions {
  uint64_t seed = 1;  // order in which threads run between barriers
};

// Runs all kernels. `values` holds the inputs and receives the outputs. Every
// operation is rounded to its type, and what is stored to its buffer's. Threads of a block run
// to their next barrier one after another in an order shuffled by `seed`. Fails, naming kernel,
// buffer, index and thread, on: an access out of bounds (global, shared byte arena, local); a read
// of memory that was never written; a data race on shared memory between barriers (also between an
// asynchronous copy that is not yet waited for and any access); a broken promise of vector
// contiguity or alignment; an output element written by two threads or by none; a barrier in
// divergent control flow.
absl::Status Interpret(const Program& program, TensorValues& values,
                       const InterpretOptions& options = {});

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_H_
