// Reductions of prefixes that threads make together (share_scan).
#ifndef HEDDLE_SEARCH_SPACE_LOWER_NESTS_SHARED_SCAN_H_
#define HEDDLE_SEARCH_SPACE_LOWER_NESTS_SHARED_SCAN_H_

#include "search_space/lower/context/kernel_context.h"

namespace heddle::search_space {

// Computes stage `s`, whose note says who shares it: a thread reduces the prefixes of its runs,
// learns from the threads of its group what comes before each run, and combines the two.
Stmt EmitSharedScan(KernelContext& context, int s, const Assumptions& assumptions);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_NESTS_SHARED_SCAN_H_
