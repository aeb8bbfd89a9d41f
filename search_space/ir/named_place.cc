#include "search_space/ir/named_place.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

// The sum without its term number `t`, as what that one's variable is equal to where the sum is 0.
Expr SolvedFor(size_t t, Linear sum) {
  const int64_t coef = sum.terms[t].coef;
  sum.terms.erase(sum.terms.begin() + static_cast<std::ptrdiff_t>(t));
  Linear solution;
  Append(std::move(sum), -coef, solution);
  return FromLinear(solution);
}

}  // namespace

bool MentionsAnyOf(const Expr& e, const std::vector<Var>& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const Var& axis) { return MentionsAny(e, {axis.get()}); });
}

std::optional<NamedPlace> NamedPlaceOf(const std::vector<Var>& axes,
                                       const std::vector<Var>& reduce_axes,
                                       const std::vector<Expr>& known, const Expr& condition) {
  if (condition->op != Op::kEq || condition->args[0]->type != DType::kInt64) return std::nullopt;
  const Linear difference = Difference(condition->args[0], condition->args[1]);
  for (size_t t = 0; t < difference.terms.size(); ++t) {
    const Term& term = difference.terms[t];
    if (term.x->op != Op::kVar || term.div != 1 || term.mod != 0) continue;
    const auto axis =
        static_cast<size_t>(std::find(axes.begin(), axes.end(), term.x->var) - axes.begin());
    if (axis == axes.size() || std::abs(term.coef) != 1 || known[axis] != nullptr) continue;
    const Expr place = SolvedFor(t, difference);
    if (ReadsIndices(place) && MentionsAnyOf(place, reduce_axes) &&
        !MentionsAny(place, {term.x->var.get()})) {
      return NamedPlace{axis, place};
    }
  }
  return std::nullopt;
}

}  // namespace heddle::search_space
