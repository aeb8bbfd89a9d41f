#include "search_space/schedule/scattered_terms.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

bool MentionsAnyOf(const Expr& e, const std::vector<Var>& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const Var& axis) { return MentionsAny(e, {axis.get()}); });
}

// A place along an axis that an index names.
struct Key {
  size_t axis;
  Expr place;
};

// place == axis, of an axis that has no key yet and a place that depends on the term.
std::optional<Key> AsKey(const ScheduledStage& stage, const std::vector<Expr>& known,
                         const Expr& condition) {
  if (condition->op != Op::kEq || condition->args[0]->type != DType::kInt64) return std::nullopt;
  const Linear difference = Difference(condition->args[0], condition->args[1]);
  for (size_t t = 0; t < difference.terms.size(); ++t) {
    const Term& term = difference.terms[t];
    if (term.x->op != Op::kVar || term.div != 1 || term.mod != 0) continue;
    const int axis = stage.FindAxis(term.x->var);
    if (axis < 0 || std::abs(term.coef) != 1 || known[static_cast<size_t>(axis)] != nullptr) {
      continue;
    }
    Linear place;
    Linear rest = difference;
    rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(t));
    Append(std::move(rest), -term.coef, place);
    const Expr named = FromLinear(place);
    if (ReadsIndices(named) && MentionsAnyOf(named, stage.reduce_axes) &&
        !MentionsAny(named, {term.x->var.get()})) {
      return Key{static_cast<size_t>(axis), named};
    }
  }
  return std::nullopt;
}

// The selects around a value, from the outermost one in.
struct Guards {
  std::vector<Expr> present, matching;  // conditions
  Expr value, otherwise;
};

// Takes selects against the number `otherwise` off `value`; returns their conditions.
std::vector<Expr> TakeSelects(double otherwise, Expr& value) {
  std::vector<Expr> conditions;
  while (value->op == Op::kSelect && value->args[2]->op == Op::kFloat &&
         value->args[2]->float_value == otherwise) {
    for (const Expr& c : Conjuncts(Simplify(value->args[0]))) conditions.push_back(c);
    value = value->args[1];
  }
  return conditions;
}

Guards GuardsAround(const ScheduledStage& stage) {
  Guards found{{}, {}, stage.body, IdentityOf(stage.combiner, stage.body->type)};
  found.matching = TakeSelects(found.otherwise->float_value, found.value);
  const bool is_extreme = stage.combiner == Combiner::kMin || stage.combiner == Combiner::kMax;
  if (is_extreme && found.value->op == Op::kSelect && found.value->args[2]->op == Op::kFloat) {
    found.present = std::move(found.matching);
    found.otherwise = found.value->args[2];
    found.matching = TakeSelects(found.otherwise->float_value, found.value);
  }
  return found;
}

// A value of which `terms` are added up as an integer; null where it is none, or the sum too large.
Expr AsWholeTerm(const Expr& value, int64_t terms) {
  const bool is_index = value->op == Op::kCast && value->args[0]->type == DType::kInt64;
  const bool is_number = value->op == Op::kFloat && std::abs(value->float_value) < INT32_MAX &&
                         std::trunc(value->float_value) == value->float_value;
  if (!is_index && !is_number) return nullptr;
  const Expr whole = is_index ? value->args[0] : Int(static_cast<int64_t>(value->float_value));
  const Interval bounds = BoundsOf(whole);
  const double largest = static_cast<double>(std::max(-bounds.min, bounds.max));
  return largest * static_cast<double>(terms) <= INT32_MAX ? whole : nullptr;
}

}  // namespace

bool ScatteredTerms::HasIdentity(Combiner combiner) const {
  return otherwise->float_value == IdentityOf(combiner, otherwise->type)->float_value;
}

std::optional<ScatteredTerms> ScatteredTermsOf(const ScheduledStage& stage) {
  if (!stage.is_reduction()) return std::nullopt;
  const Guards guards = GuardsAround(stage);
  std::vector<Expr> keys(stage.axes.size()), others;
  for (const Expr& condition : guards.matching) {
    if (const std::optional<Key> key = AsKey(stage, keys, condition)) {
      keys[key->axis] = key->place;
    } else {
      others.push_back(condition);
    }
  }
  std::vector<Var> keyed;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != nullptr) keyed.push_back(stage.axes[i]);
  }
  const bool is_chained = std::any_of(keys.begin(), keys.end(), [&](const Expr& key) {
    return key != nullptr && MentionsAnyOf(key, keyed);
  });
  if (keyed.empty() || is_chained) return std::nullopt;
  const auto at_place = [&](const Expr& e) {
    return Substitute(e, [&](const Var& v) -> Expr {
      const int axis = stage.FindAxis(v);
      return axis < 0 ? nullptr : keys[static_cast<size_t>(axis)];
    });
  };
  const auto all_of = [&](const std::vector<Expr>& conditions) {
    Expr all;
    for (const Expr& c : conditions) all = AndAlso(all, at_place(c));
    return all;
  };
  const Expr value = at_place(guards.value);
  return ScatteredTerms{.keys = keys,
                        .present = all_of(guards.present),
                        .condition = all_of(others),
                        .value = value,
                        .whole = stage.combiner == Combiner::kSum
                                     ? AsWholeTerm(value, ExtentOf(stage.reduce_axes))
                                     : nullptr,
                        .otherwise = guards.otherwise};
}

int64_t PlacesOfTerm(const ScheduledStage& stage) {
  const std::optional<ScatteredTerms> terms = ScatteredTermsOf(stage);
  int64_t places = 1;
  for (size_t i = 0; terms && i < stage.axes.size(); ++i) {
    if (terms->keys[i] != nullptr) places *= stage.axes[i]->extent;
  }
  return places;
}

}  // namespace heddle::search_space
