// Reductions of a few terms, such as a distance in three dimensions, as expressions: what reduces
// them further then reads tensors, and no stage that would have to be stored.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_EXPAND_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_EXPAND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The few terms of the reduction `stage` are written out. Comes before all other steps.
struct ExpandTerms {
  std::string stage;

  HEDDLE_PRIMITIVE(ExpandTerms, "expand", stage);
};

// The program in which stage `name`, S[a] = combiner(r) e, is elementwise: e at the first r
// combined with e at the second, and so on, in that order. InvalidArgument where it is no reduction
// of at most 8 terms, or the expression would be too long.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithExpandedTerms(const TensorProgram& program,
                                                                       const std::string& name);

// Those of which another reduction reads elements, itself or through elementwise stages, but none
// whose elements anybody compares for equality, as positions of a least one do.
std::vector<std::string> TermsWorthExpanding(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_EXPAND_H_
