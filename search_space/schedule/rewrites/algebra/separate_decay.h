// Sums of prefixes whose terms decay with their distance, such as exponential moving averages,
// discounted returns and states of linear recurrences, as cumulative sums: what decays from r to j
// decays from r to the middle of the axis, and on from there to j.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SEPARATE_DECAY_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SEPARATE_DECAY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// A sum of prefixes whose terms decay with their distance becomes a cumulative sum. Comes before
// all other steps.
struct SeparateDecay {
  std::string stage;

  HEDDLE_PRIMITIVE(SeparateDecay, "separate_decay", stage);
};

// The program in which stage `name`,
//   S[.., j, ..] = sum(.., r, ..) select(r <= j, e * pow(c, j - r), 0)
// for a constant c, r and j of one extent n and no other j in e, is
//   S.scan[.., j, ..] = sum(.., r, ..) select(r <= j, e * pow(c, n / 2 - r), 0)
//   S[.., j, ..]      = S.scan[.., j, ..] * pow(c, j - n / 2)
// and so for `<`, `>=` and `>`, multiples of j - r, exp(a * (j - r)), and weights that a stage of
// numbers of the sum's type has, which reads no tensor. Partial sums are rounded as those of the
// definition are, relative to their terms. InvalidArgument where the stage is not such a sum, or
// the weights are larger or less than kMostDecay and its reciprocal.
inline constexpr double kMostDecay = 1e13;
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSeparateDecay(const TensorProgram& program,
                                                                       const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SEPARATE_DECAY_H_
