// Windows over several axes, along one of them after the other: of 9 x 9 elements 9 and 9 are
// combined, and not 81. (Separable filters; of erosion and dilation by J. Serra, Image Analysis and
// Mathematical Morphology, 1982.)
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SEPARATE_WINDOW_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SEPARATE_WINDOW_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Reduces a window along one axis at a time, as the first step of a schedule.
struct SeparateWindow {
  std::string stage;

  HEDDLE_PRIMITIVE(SeparateWindow, "separate_window", stage);
};

// The program with stage `name`, S[.., y, ..] = comb(r, s) g in which y and r are read as one sum
// p = a * y + b * r only, where a = 1 or |b| = 1, in two stages,
//   S.window0[.., p, ..] = comb(s) g
//   S[.., y, ..]         = comb(r) S.window0[.., a * y + b * r, ..]
// and the first of them likewise. Factors of a sum's terms that mention none of s stay with S: the
// weights W[r] of a filter W[r] * W[s]. Of all such y and r those of fewest terms are taken, at
// most half as many as before; S.window0, from the least p on, has at most four times as many
// elements as the program's inputs and outputs have. InvalidArgument where there are none.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSeparateWindow(
    const TensorProgram& program, const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_SEPARATE_WINDOW_H_
