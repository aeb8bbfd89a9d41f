// What rules make of a program's kernels, of which sketches choose one for each.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_PLANS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_PLANS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {

struct Plan {
  const SketchRule* rule;
  std::shared_ptr<const KernelPlan> plan;
  bool superseded = false;  // as a sketch's
};
using Plans = std::vector<Plan>;  // of one kernel

// Kernels that units for matrices can compute.
size_t CountMatrices(const std::vector<Plans>& plans);

bool HasValidDefault(const KernelPlan& plan);
double WasteOfDefault(const KernelPlan& plan);

// The plan that a rule makes, if it has a point or need not.
std::optional<Plan> PlanOf(const SketchRule& rule, const ProgramShape& shape,
                           const KernelShape& kernel, const Target& target);

// What each rule that applies makes of each kernel. A kernel that only another algorithm has needs
// no fallback where a rule knows better: the definition's sketches already hold what is simple. Nor
// has one whose sums a fallback, which adds them up one term after another, gets wrong.
std::vector<Plans> PlansOf(const ProgramShape& shape, bool is_definition, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_PLANS_H_
