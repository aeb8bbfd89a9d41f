// Sums of products with factors that are the same in all terms, such as a softmax's denominator in
// the sum of what its weights multiply, or the scale of a normalised row in a product of matrices:
// the sum of what is left, multiplied once.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_HOIST_FACTORS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_HOIST_FACTORS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Factors that a sum's terms have in common are multiplied behind it. Comes before all other steps.
struct HoistFactors {
  std::string stage;

  HEDDLE_PRIMITIVE(HoistFactors, "hoist_factors", stage);
};

// The program in which stage `name`, S[i] = sum(r) a[i, r] / b[i] * c[i], where b and c read
// tensors and mention no reduced axis, is
//   S.sum[i] = sum(r) a[i, r]
//   S[i]     = S.sum[i] * c[i] / b[i]
// A factor that an elementwise stage makes, which is not rounded and which nobody else reads, is
// part of the product, where what is left of it is of an input or made of a reduction's: P of
//   P[i, r] = E[i, r] / Z[i]
//   S[i, j] = sum(r) P[i, r] * V[r, j]
// is gone, and S.sum[i, j] = sum(r) E[i, r] * V[r, j]. Each term is rounded once less, the sum once
// more. InvalidArgument where the stage is no sum, all of its factors mention a reduced axis, or
// the rest reads one tensor alone, whose terms cost no less then.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithHoistedFactors(
    const TensorProgram& program, const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_HOIST_FACTORS_H_
