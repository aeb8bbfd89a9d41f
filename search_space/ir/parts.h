// A float32 number as the sum of two bfloat16 ones, which units that multiply small matrices take:
// the number rounded, and what that leaves, rounded. (G. Henry, P. T. P. Tang, A. Heinecke,
// Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations, ARITH
// 2019.)
#ifndef HEDDLE_SEARCH_SPACE_IR_PARTS_H_
#define HEDDLE_SEARCH_SPACE_IR_PARTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "search_space/ir/expr/expr.h"
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

// A float32 value with which the terms of a sum are multiplied, and which may be split into parts.
struct SplittableFactor {
  // The factors of the sum's body that make it, nodes of that body, without the conditions under
  // which they are 0 where these can stay with the sum.
  std::vector<Expr> factors;
  Expr value;  // their product
  // Where the value is a function of one element of a tensor, the load of that; null: it is made of
  // several, and its parts have an element for all values of the axes that it mentions.
  Expr load;
};

// Of a sum of products of float32 and of kPartType: all that its terms are multiplied with, but for
// one factor of kPartType and what is the same in all terms. That is a stage of float32, or, where
// the sum is a product of matrices, what is computed from tensors' elements and is no number of
// kPartType: max(S[i, r], 0), or X[i, r] * G[r]. nullopt: there is none.
std::optional<SplittableFactor> FindSplittable(const TensorProgram& program, const Stage& sum);

// The sums of a program of which a factor may be split into parts.
int CountSplittable(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_PARTS_H_
