// The canonical form of integer expressions (simplify.h), as data. Internal to simplify.cc and its
// tests.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {

// coef * ((x / div) % mod); mod 0 = no modulo. x is a variable, an index that is
// loaded, an operation that the algebra does not look into, or (with div > 1 or mod > 0) a sum.
struct Term {
  Expr x;
  int64_t div = 1;
  int64_t mod = 0;
  int64_t coef = 1;
};

// Sum of terms in a fixed order (by x, then div, then mod), no two alike, no coefficient zero.
struct Linear {
  absl::InlinedVector<Term, 6> terms;
  int64_t constant = 0;
};

Linear ToLinear(const Expr& e);
// The sum of weight * summand.
Linear WeightedSum(absl::Span<const Expr> summands, absl::Span<const int64_t> weights);
inline Linear Difference(const Expr& a, const Expr& b) { return WeightedSum({a, b}, {1, -1}); }
Expr FromLinear(const Linear& l);

Linear Add(Linear a, const Linear& b, int64_t b_factor = 1);  // a + b_factor * b
Linear FloorDiv(Linear a, int64_t d);                         // d >= 1
Linear FloorMod(Linear a, int64_t d);                         // d >= 1

Interval BoundsOf(const Term& t);
Interval BoundsOf(const Linear& l);
// The upper bound of a_factor * a + b_factor * b, both in their order.
int64_t MostOf(const Linear& a, int64_t a_factor, const Linear& b, int64_t b_factor);
ModRem ModulusRemainder(const Linear& l);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_H_
