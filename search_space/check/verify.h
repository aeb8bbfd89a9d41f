// Static checks of a lowered program, made before anything is compiled.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_VERIFY_H_
#define HEDDLE_SEARCH_SPACE_CHECK_VERIFY_H_

#include "absl/status/status.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"

namespace heddle::search_space {

// OK when every access is proven in bounds (intervals narrowed by the conditions of enclosing Ifs
// and selects), every promised vector access is proven contiguous and aligned, barriers stand only
// in uniform control flow, local buffers are indexed by constants once unrolled loops are expanded,
// every vector loop has the form that stmt.h demands, kernels write only what they declare, every
// workspace is written by an earlier kernel before it is read, and the launch limits of `target`
// hold (threads, grid, shared memory). InvalidArgument names kernel, access and reason;
// ResourceExhausted is used for launch limits.
absl::Status Verify(const Program& program, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_VERIFY_H_
