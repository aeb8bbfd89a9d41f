// A mean and a sum of squared differences from it in one pass: sums of differences, and of their
// squares, from one of the terms instead of from the mean, which is not known yet. (T. F. Chan, G.
// H. Golub, R. J. LeVeque, Algorithms for computing the sample variance, 1983: shifted data.)
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SHIFT_MOMENTS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SHIFT_MOMENTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Computes a sum of squared differences from a mean without waiting for the mean, as the first step
// of a schedule.
struct ShiftMoments {
  std::string stage;

  HEDDLE_PRIMITIVE(ShiftMoments, "shift_moments", stage);
};

// The program with other stages for V, stage `name`, and S, which it reads, where these are
//   S[a] = sum(r) x,    V[a] = sum(r) (x - S[a] / n) * (x - S[a] / n)
// for n combinations of r, and what lies between them is elementwise. With k[a], of the first x,
// the one in the middle and the last one the one that lies between the others:
//   S.shifted[a] = sum(r) (x - k),    V.shifted[a] = sum(r) (x - k) * (x - k)
//   S[a] = S.shifted[a] + n * k
//   V[a] = max(V.shifted[a] - S.shifted[a] * S.shifted[a] / n, 0)
// No term waits for another sum any more. The error of V is that of the definition times
// 1 + (k - S / n)^2 n / V: a small number unless k is an outlier, n at worst. InvalidArgument where
// V is no such stage, or a sum is rounded as it is stored.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithShiftedMoments(
    const TensorProgram& program, const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SHIFT_MOMENTS_H_
