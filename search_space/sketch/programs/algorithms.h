// The ways to compute a tensor program, each a list of steps that begins its schedules.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_ALGORITHMS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_ALGORITHMS_H_

#include <memory>
#include <string>
#include <vector>

#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

struct Algorithm {
  std::string name;
  std::vector<Step> steps;
  // Is it there for reductions that can be computed together (FindKernelsTogether)?
  bool together = false;
  // Is it there for products on units that multiply matrices?
  bool only_matrices = false;
  // Are its sketches numbered behind those of all others, partitions (partition.h) included?
  bool is_last = false;
};

// First the definition itself, without steps; then, where they apply, "collapse" (collapse.h), or
// else "merge" (merge_axes.h), and "flatten" (collapse.h), of positions of windows and of what is
// summed in small ones, for reductions over several tensors, "contract" (contract.h), "winograd"
// (winograd.h), "phases" (phases.h), "scan" (scan.h), "moments" (shift_moments.h), "expand"
// (expand.h), "narrow" (narrow_factors.h), "windows" (separate_window.h), "join" (join_sums.h),
// "by_part" (take_apart.h), "pad_gathered" and "pad_channels" (pad_terms.h), "split_operand"
// (split_operand.h) and "pad_terms" (pad_terms.h), of every stage to which that applies; what is
// padded is split, too.
std::vector<Algorithm> AlgorithmsOf(const std::shared_ptr<const TensorProgram>& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_ALGORITHMS_H_
