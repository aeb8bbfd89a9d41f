// A rule, which makes plans for the kernels to which it applies.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_RULE_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_RULE_H_

#include <memory>

#include "search_space/ir/target.h"
#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/kernels/kernels.h"

namespace heddle::search_space {

// Terms that one float32 accumulator adds up one after another, at most: a million positive ones
// are off by a seventh of the tolerance, four million by more than all of it.
inline constexpr int64_t kMostSerialTerms = int64_t{1} << 20;

// Looks at one kernel of a program and makes a plan for it.
struct SketchRule {
  const char* name;
  // Null where the rule does not apply.
  std::unique_ptr<KernelPlan> (*apply)(const ProgramShape& shape, const KernelShape& kernel,
                                       const Target& target);
  // Does its plan place what lies between the reductions of a fused kernel? Others are not asked
  // about those.
  bool takes_fused_kernels = false;
  // Does its plan reduce what a kernel has beside its rows?
  bool takes_beside = false;
  // Is its plan there for want of a better one? Only the definition keeps it beside others.
  bool is_fallback = false;
  // Does its plan use units that multiply small matrices, many times faster than all others do?
  bool multiplies_matrices = false;
  // Is its plan worth trials only where no rule before it but a fallback applies?
  bool is_last_resort = false;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_RULE_H_
