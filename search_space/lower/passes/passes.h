// Lowering passes over the body of one kernel: each a function from statement to statement, in
// passes/NAME.cc. kernel.cc runs them in this order.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_PASSES_PASSES_H_
#define HEDDLE_SEARCH_SPACE_LOWER_PASSES_PASSES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "search_space/ir/stmt.h"

namespace heddle::search_space {

// Called with a kernel as it was emitted ("emit"), then as every pass here left it.
using PassObserver = absl::FunctionRef<void(absl::string_view pass, const Kernel& kernel)>;

// Replicates what depends on the virtual thread `vthread`: local buffers that hold different values
// for different virtual threads get a leading dimension, and an unrolled loop over the virtual
// threads is pushed down to the innermost nests that mention one. What does not depend on it, such
// as fetches and barriers, stays single. InvalidArgument when a shared buffer would depend on it.
absl::StatusOr<Stmt> InjectVirtualThread(const Stmt& body, const Var& vthread);

// Resolves vector loops access by access: an access whose addresses are proven consecutive and
// aligned, under conditions that are proven equal for all lanes, becomes one wide access. Loops
// without any such access become unrolled ones. Asynchronous copies that stay narrower than a
// device can make them, as of single 16-bit elements, become stores.
Stmt VectorizeAccesses(const Stmt& body);

// Writes out the iterations of unrolled loops whose variable decides a select, so that each holds
// only what it computes.
Stmt ExpandDecidingLoops(const Stmt& body);

// Unrolls every loop whose variable indexes a local buffer: registers have no addresses.
Stmt UnrollRegisterLoops(const Stmt& body);

// Orders the multiply-adds of every tile that is held in registers, so that neighbours share an
// operand: the loops of one factor run inside those of the other and turn back at every end. What
// an instruction shares with the last it need not read from the banks of the register file again
// (CUTLASS orders its thread-level products to that end, too). Measured: docs/notebook.md.
Stmt OrderRegisterTiles(const Stmt& body);

// Inserts barriers between conflicting accesses to shared buffers by different threads, also around
// loops. The buffers of pipelines have theirs already.
Stmt InsertBarriers(const Stmt& body);

// Where threads store to shared memory that products of a warpgroup read, puts a fence in front of
// every barrier: so products see what was stored by then.
Stmt InsertProxyFences(const Stmt& body);

// Gives every shared buffer of the kernel a place in the block's arena. A large one, from which
// threads copy the kernel's results, may lie where buffers did that nobody mentions any more:
// behind a barrier, which is added.
void PlaceSharedBuffers(Kernel& kernel);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_PASSES_PASSES_H_
