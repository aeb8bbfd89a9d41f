// Products of whole numbers, such as codes of 8 bits, counts and indicators, as products of 16-bit
// numbers, which units for matrices multiply.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_NARROW_FACTORS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_NARROW_FACTORS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The factors of `stage`, a sum of products, are converted to 16 bits, which have their values.
// Comes before all other steps.
struct NarrowFactors {
  std::string stage;

  HEDDLE_PRIMITIVE(NarrowFactors, "narrow_factors", stage);
};

// The program in which the factors of the sum `name` that are whole numbers are converted to a type
// of 16 bits that has them (TypeOfWholeFactors, ir/whole_factors.h), and back:
//   C[i, j] = sum(r) (X[i, r] - 128) * (W[j, r] - 128)                                   becomes
//   C[i, j] = sum(r) float32(float16(X[i, r] - 128)) * float32(float16(W[j, r] - 128))
// A sum of select(I[r] == i, x, 0) is one of products with an indicator, 1 or 0.
// Along an axis of more than 16 terms that are no multiple of 16 there are zeros up to the next
// one: what is computed past the end of indices is none. InvalidArgument where there is no such
// type.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithNarrowFactors(const TensorProgram& program,
                                                                       const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_ALGEBRA_NARROW_FACTORS_H_
