// A float32 number as the sum of two bfloat16 ones, which units that multiply small matrices take:
// the number rounded, and what that leaves, rounded. (G. Henry, P. T. P. Tang, A. Heinecke,
// Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations, ARITH
// 2019.)
#ifndef HEDDLE_SEARCH_SPACE_IR_PARTS_H_
#define HEDDLE_SEARCH_SPACE_IR_PARTS_H_

#include <cstdint>

#include "search_space/ir/expr.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// float16 would not do: its largest number is 65504, and what is left of one less than 2^-3 has
// fewer digits there.
inline constexpr DType kPartType = DType::kBFloat16;
inline constexpr int64_t kPartCount = 2;
// How far the sum of a number's parts is from it at most, relative to it: the first leaves 2^-8 of
// the power of two below the number, of which the second leaves 2^-9.
inline constexpr double kPartsLoss = 0x1p-17;
// Integers up to here are the sums of their parts: what the first leaves of one is at most 2^8.
inline constexpr double kMostExactInParts = 0x1p17;

// Part number `part`, 0 or 1, of a float32 `value` that is finite and does not depend on it; still
// to be rounded to kPartType: select(part == 0, value, value - float32(bfloat16(value))).
Expr PartOf(const Expr& part, const Expr& value);

// What `e` is PartOf; null where it is none.
Expr WholeOf(const Expr& e);

// What a sum's terms are multiplied with that may be split into parts: the load of a stage of
// float32, the one factor that is of float32 and is not the same in all terms, where exactly one
// other factor is not, and that is of kPartType. Both may be 0 by a condition. null: there is none.
Expr SplittableFactor(const TensorProgram& program, const Stage& sum);

// The sums of a program of which a factor may be split into parts.
int CountSplittable(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_PARTS_H_
