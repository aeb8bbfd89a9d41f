// The canonical form of integer expressions (simplify.h), as data: what can be done with sums of
// terms without looking into the terms. linear.h makes them.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_FORM_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_FORM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "search_space/ir/expr/expr.h"

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

Expr FromLinear(const Linear& l);

// A total order of expressions that does not depend on addresses.
int CompareExprs(const Expr& a, const Expr& b);

// The same of what stands in terms: most are variables.
inline int CompareTerms(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  if (a->op != Op::kVar || b->op != Op::kVar) return CompareExprs(a, b);
  return a->var->id == b->var->id ? 0 : (a->var->id < b->var->id ? -1 : 1);
}

// Of terms without their coefficients: 0 = they are alike.
inline int CompareKeys(const Term& a, const Term& b) {
  if (int c = CompareTerms(a.x, b.x); c != 0) return c;
  if (a.div != b.div) return a.div < b.div ? -1 : 1;
  if (a.mod != b.mod) return a.mod < b.mod ? -1 : 1;
  return 0;
}

// Sorts what is short, or in order but for a few elements; elements that are alike stay in order.
template <typename List, typename Less>
void SortShort(List& list, const Less& less) {
  constexpr size_t kShort = 16;
  if (list.size() > kShort) return std::stable_sort(list.begin(), list.end(), less);
  for (size_t i = 1; i < list.size(); ++i) {
    if (!less(list[i], list[i - 1])) continue;
    auto moved = std::move(list[i]);
    size_t place = i;
    do {
      list[place] = std::move(list[place - 1]);
    } while (--place > 0 && less(moved, list[place - 1]));
    list[place] = std::move(moved);
  }
}

// The two identities that undo a division, for terms of one x:
//   c*d*((x/(a*d)) % m) + c*((x/a) % d)  ->  c*((x/a) % (d*m))      (m = 0 meaning no modulo)
//   c*((x/a) % m) - c*d*((x/(a*d)) % (m/d))  ->  c*((x/a) % d)
// Returns true when `low` (the smaller divisor) took `high` in.
bool MergeTerms(Term& low, const Term& high);

// Adds factor * l, terms as they come.
void Append(const Linear& l, int64_t factor, Linear& sum);
void Append(Linear&& l, int64_t factor, Linear& sum);

// The part of `l` whose coefficients (and constant) are multiples of g, divided by g, and the rest.
void SplitMultiples(Linear l, int64_t g, Linear& quotient, Linear& rest);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_LINEAR_FORM_H_
