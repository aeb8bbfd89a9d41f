// The form of a definition in which rules look for what they know: all sketches of a program are of
// that, behind the steps that make it.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_FORM_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_FORM_H_

#include <memory>
#include <vector>

#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

struct Form {
  std::vector<Step> steps;
  std::shared_ptr<const TensorProgram> program;  // behind them
};
// Axes that are read by quotients and remainders are two (split_axis.h), and so are dimensions of
// inputs that number two things (split_dim.h); sums of prefixes that decay are cumulative sums
// (separate_decay.h), and factors that all terms of a sum have are multiplied behind it
// (hoist_factors.h); two axes that are rows of a factor, or that a product and all that reductions
// make have together, are one (merge_axes.h); what is divided at fixed places is divided at all
// (quotient.h); then axes come in the order in which they are read, or, of products' results, in
// which they can be stored (permute.h).
Form FormOf(const std::shared_ptr<const TensorProgram>& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_FORM_H_
