// Sums of products of which a stage makes a factor that has factors of its own which are the same
// in all terms, such as a softmax's denominator in the sum of what its weights multiply, or the
// scale of a normalised row in a product of matrices: the sum of what is left, multiplied once.
// What stands in the sum itself is multiplied behind it without a step (finish.h).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_HOIST_FACTORS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_HOIST_FACTORS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Factors that a sum's terms have in common, some in a stage, are multiplied behind it. Comes
// before all other steps.
struct HoistFactors {
  std::string stage;

  HEDDLE_PRIMITIVE(HoistFactors, "hoist_factors", stage);
};

// The program in which stage `name`, S, of
//   P[i, r] = E[i, r] / Z[i]
//   S[i, j] = sum(r) P[i, r] * V[r, j]
// where Z reads a tensor and mentions no reduced axis, is
//   S.sum[i, j] = sum(r) E[i, r] * V[r, j]
//   S[i, j]     = S.sum[i, j] / Z[i]
// P is an elementwise stage that nobody else reads, and what is left of it is an element of an
// input, scaled, or made of a reduction's elements along r. Each term is rounded once less, the sum
// once more; terms that only their scale keeps within float32's range are not kept there, as those
// of finish.h are not. Where P is rounded to 16 bits it stays, and is E, rounded: relative to its
// value each term is as exact as before. So it is in bfloat16, which has float32's range; in
// float16 P is taken apart where E is a number of that type, or P a softmax's weight.
// InvalidArgument where the stage is no sum, no such stage makes one of its factors, or the rest
// reads one tensor alone, whose terms cost no less then.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithHoistedFactors(
    const TensorProgram& program, const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_HOIST_FACTORS_H_
