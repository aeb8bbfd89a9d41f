// Products of whole numbers, such as codes of 8 bits, counts and indicators, which types of 16 bits
// have, so that units for matrices multiply them.
#ifndef HEDDLE_SEARCH_SPACE_IR_WHOLE_FACTORS_H_
#define HEDDLE_SEARCH_SPACE_IR_WHOLE_FACTORS_H_

#include "absl/status/statusor.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// `factor`, of float32, in float16 or bfloat16 where it is made of such numbers alone
// (narrow_expr.h); nullptr otherwise.
Expr AsHalf(const Expr& factor);

// Does it add up products of two tensors' elements, converted perhaps?
bool AddsUpProducts(const Stage& stage);

// Has a factor of what the stage adds up an axis of the result that the other one has not?
bool HasOwnAxis(const Stage& sum, const Expr& factor, const Expr& other);

// The two factors of what `sum` adds up: of select(I[r] == i, x, 0), as sums of what belongs to one
// place are written, an indicator and x, which has to be finite. Empty where there are none.
ExprList FactorsOf(const Stage& sum);

// Of `sum`, a product of matrices: the type of 16 bits that has the values of both factors, at
// least one of which is a whole number made of indices, constants and comparisons: that of the
// other one where it is of 16 bits, else float16, which has whole numbers up to 2048; bfloat16 has
// them up to 256. InvalidArgument where there is none, and in programs of float32 where the sum may
// be greater than 2^24: units for matrices round that otherwise than float32's additions do.
absl::StatusOr<DType> TypeOfWholeFactors(const TensorProgram& program, const Stage& sum);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_WHOLE_FACTORS_H_
