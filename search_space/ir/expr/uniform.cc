#include "search_space/ir/expr/uniform.h"

#include "base/math.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {

// The difference of a comparison's sides is what `var` contributes and what all else does, a
// multiple of m plus c: the comparison is uniform when no multiple of m can turn the sign between
// the smallest and the largest contribution of `var`.
bool IsUniform(const Expr& comparison, const Var& var) {
  if (!MentionsAny(comparison, {var.get()})) return true;
  if (comparison->op == Op::kAnd || comparison->op == Op::kOr) {
    return IsUniform(comparison->args[0], var) && IsUniform(comparison->args[1], var);
  }
  const bool inequality = comparison->op == Op::kLt || comparison->op == Op::kLe;
  if (!inequality || comparison->args[0]->type != DType::kInt64) return false;
  // sum <= 0
  Linear sum = Difference(comparison->args[0], comparison->args[1]);
  if (comparison->op == Op::kLt) sum.constant += 1;
  Linear others;
  others.constant = sum.constant;
  int64_t low = 0, high = 0;
  for (const Term& t : sum.terms) {
    if (!MentionsAny(t.x, {var.get()})) {
      others.terms.push_back(t);
      continue;
    }
    if (t.x->op != Op::kVar) return false;
    const Interval b = BoundsOf(t);
    low += b.min;
    high += b.max;
  }
  const ModRem m = ModulusRemainder(others);
  if (m.modulus == 0) return others.constant + high <= 0 || others.constant + low > 0;
  // The largest value of `others` with others + low <= 0 must also have others + high <= 0.
  const int64_t room = -low - m.remainder;
  const int64_t largest = FloorDivide(room, m.modulus) * m.modulus + m.remainder;
  return largest + high <= 0;
}

}  // namespace heddle::search_space
