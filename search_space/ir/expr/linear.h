// Expressions in their canonical form (simplify.h). Conditions and values are made of integers and
// integers of those (an index that is loaded, a choice), so that all become canonical here, by one
// recursion. For those who compute with the form; simplify.h is for all others.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_H_

#include <cstdint>

#include "absl/types/span.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/expr/interval.h"
#include "search_space/ir/expr/linear_form.h"

namespace heddle::search_space {

Linear ToLinear(const Expr& e);
// The sum of weight * summand.
Linear WeightedSum(absl::Span<const Expr> summands, absl::Span<const int64_t> weights);
inline Linear Difference(const Expr& a, const Expr& b) { return WeightedSum({a, b}, {1, -1}); }

Linear Add(Linear a, const Linear& b, int64_t b_factor = 1);  // a + b_factor * b
Linear FloorDiv(Linear a, int64_t d);                         // d >= 1
Linear FloorMod(Linear a, int64_t d);                         // d >= 1

Interval BoundsOf(const Term& t);
Interval BoundsOf(const Linear& l);
// The upper bound of a_factor * a + b_factor * b, both in their order.
int64_t MostOf(const Linear& a, int64_t a_factor, const Linear& b, int64_t b_factor);
ModRem ModulusRemainder(const Linear& l);

// A condition in the form `sum <= 0`.
using Inequality = Linear;
// a < b and a <= b as inequalities, divided by the common divisor of their coefficients.
Inequality MakeInequality(Op op, const Expr& a, const Expr& b);

// Simplify (simplify.h) is this; the recursion of sums and conditions is all here.
Expr Canonical(const Expr& e);

// Is something divided in it? Bounds of quotients are not exact.
bool HasQuotient(const Expr& e);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_H_
