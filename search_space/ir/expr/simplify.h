// Index algebra: a canonical form for integer expressions, their bounds, divisibility and proofs.
//
// The canonical form is sum of c * ((x / d) % m) + c0 with floor semantics, where x is a variable
// or a sum that no rule could take apart. There is no general rewriter: every rule is a property of
// floor division or of ranges, listed in linear.cc and linear_form.cc and fuzzed one by one.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_SIMPLIFY_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_SIMPLIFY_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/expr/interval.h"

namespace heddle::search_space {

// Bounds of an integer or boolean expression from the extents of its variables. Tight for sums of
// independent terms, conservative otherwise; saturates at +-2^62.
Interval BoundsOf(const Expr& e);

// The canonical form. Integers and conditions inside loads, selects and casts are simplified too;
// values are left as they are, except that selects with a decided condition collapse.
Expr Simplify(const Expr& e);

// Simplify of `e` with `value` in the place of `var`. Looks only into the sides of selects that
// stay.
Expr SimplifyAt(const Expr& e, const Var& var, const Expr& value);

// True when `condition` holds whenever all of `assumptions` do. Understands affine comparisons and
// conjunctions; false when in doubt.
bool Proves(const std::vector<Expr>& assumptions, const Expr& condition);

// The variables that `condition`, known beside `assumptions`, can prove anything about: its own and
// those that an assumption relates to them.
using Variables = absl::InlinedVector<const Variable*, 8>;
Variables ConcernedBy(const std::vector<Expr>& assumptions, const Expr& condition);
bool MentionsAny(const Expr& e, const Variables& variables);

// What `e` is for all values of its variables.
ModRem ModulusRemainder(const Expr& e);

// Splits `e` into the part that depends only on variables for which `relaxed` is false (returned
// as `base`, plus constants) such that base <= e <= base + extent - 1 for all values of the relaxed
// ones, as tightly as the canonical form shows.
struct Region {
  Expr base;
  int64_t extent;
};
Region RegionOf(const Expr& e, absl::FunctionRef<bool(const Var&)> relaxed);

// Conjunction of two conditions, simplified; null means true.
Expr AndAlso(const Expr& a, const Expr& b);

// The comparisons of a conjunction, in order.
std::vector<Expr> Conjuncts(const Expr& condition);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_SIMPLIFY_H_
