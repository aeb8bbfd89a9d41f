// What threads have reduced each for itself, combined through shuffles and shared memory.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_NESTS_COLLECTIVES_H_
#define HEDDLE_SEARCH_SPACE_LOWER_NESTS_COLLECTIVES_H_

#include <vector>

#include "search_space/ir/stmt.h"

namespace heddle::search_space {

// Combines the registers of `group` neighbouring threads (a power of two); all of them get the
// result. The block of `thread` must be whole warps and whole groups.
Stmt CombineNeighbours(Combiner combiner, const BufferRef& registers, const Var& thread,
                       int64_t group);

// Combines the registers of threads that have the same place in `slices` equal parts of the block;
// those of the last part get the result, or, `for_all`, those of every part. `vthreads`: the
// virtual threads that the registers will depend on.
Stmt CombineSlices(Combiner combiner, const BufferRef& registers, const Var& thread, int64_t slices,
                   bool for_all, const std::vector<Var>& vthreads);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_NESTS_COLLECTIVES_H_
