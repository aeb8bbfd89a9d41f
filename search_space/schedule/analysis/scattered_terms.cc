#include "search_space/schedule/analysis/scattered_terms.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/named_place.h"

namespace heddle::search_space {
namespace {

std::optional<NamedPlace> PlaceOf(const ScheduledStage& stage, const std::vector<Expr>& known,
                                  const Expr& condition) {
  return NamedPlaceOf(stage.axes, stage.reduce_axes, known, condition);
}

// What a place has of a term under conditions, those under which any place has anything of it
// apart.
struct Addend {
  std::vector<Expr> present, matching;
  Expr value, otherwise;
};

void AddConjuncts(const Expr& condition, std::vector<Expr>& conditions) {
  for (const Expr& c : Conjuncts(Simplify(condition))) conditions.push_back(c);
}

// Takes selects against the number `otherwise` off `value`.
void TakeSelects(double otherwise, Expr& value, std::vector<Expr>& conditions) {
  while (value->op == Op::kSelect && value->args[2]->op == Op::kFloat &&
         value->args[2]->float_value == otherwise) {
    AddConjuncts(value->args[0], conditions);
    value = value->args[1];
  }
}

// The same of the factors of a product, which is zero where one of them is.
void TakeFactors(Expr& value, std::vector<Expr>& conditions) {
  if (value->op != Op::kMul) return;
  ExprList factors = value->args;
  for (Expr& factor : factors) {
    TakeSelects(0, factor, conditions);
    TakeFactors(factor, conditions);
  }
  const auto is_one = [](const Expr& e) { return e->op == Op::kFloat && e->float_value == 1; };
  value = is_one(factors[0])   ? factors[1]
          : is_one(factors[1]) ? factors[0]
                               : MakeExpr(Op::kMul, factors);
}

Expr Negative(const Expr& e) {
  return e->op == Op::kFloat ? Float(-e->float_value, e->type) : MakeExpr(Op::kNeg, {e});
}

// Of a sum, whose terms are `value` under `conditions`.
void AddAddends(const ScheduledStage& stage, Expr value, std::vector<Expr> conditions,
                bool is_negative, std::vector<Addend>& all) {
  const auto has_key = [&] {
    const std::vector<Expr> none(stage.axes.size());
    return std::any_of(conditions.begin(), conditions.end(),
                       [&](const Expr& c) { return PlaceOf(stage, none, c).has_value(); });
  };
  TakeSelects(0, value, conditions);
  if (!has_key()) {
    const bool subtracts = value->op == Op::kSub;
    if (value->op == Op::kAdd || subtracts) {
      AddAddends(stage, value->args[0], conditions, is_negative, all);
      AddAddends(stage, value->args[1], conditions, is_negative != subtracts, all);
      return;
    }
    TakeFactors(value, conditions);
  }
  all.push_back({{},
                 std::move(conditions),
                 is_negative ? Negative(value) : value,
                 Float(0, stage.body->type)});
}

// Is it a number that grows with the one reduced axis?
bool GrowsWithTerms(const ScheduledStage& stage, const Expr& value) {
  if (stage.reduce_axes.size() != 1 || value->op != Op::kCast) return false;
  if (value->args[0]->type != DType::kInt64) return false;
  const Linear sum = ToLinear(value->args[0]);
  return std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& t) {
    const bool is_axis = IsVar(t.x, stage.reduce_axes[0]) && t.div == 1 && t.mod == 0 && t.coef > 0;
    return is_axis || !MentionsAnyOf(t.x, stage.reduce_axes);
  });
}

// Which term is the first whose value, select(I[r] == i, v, s), equals D[i], as the least of a
// place (argmin): of its own place that says v, of all others the number s.
void TakeEquality(const ScheduledStage& stage, Addend& addend) {
  if (stage.combiner != Combiner::kMin || addend.matching.size() != 1) return;
  const Expr equal = addend.matching[0];
  if (equal->op != Op::kEq || !GrowsWithTerms(stage, addend.value)) return;
  for (const size_t side : {0, 1}) {
    const Expr &chosen = equal->args[side], &wanted = equal->args[1 - side];
    if (chosen->op != Op::kSelect || chosen->args[2]->op != Op::kFloat) continue;
    if (MentionsAnyOf(wanted, stage.reduce_axes)) continue;
    addend.matching.clear();
    AddConjuncts(chosen->args[0], addend.matching);
    const Expr position = addend.value, none = addend.otherwise;
    addend.value = Select(MakeExpr(Op::kEq, {chosen->args[1], wanted}), position, none);
    addend.otherwise = Select(MakeExpr(Op::kEq, {chosen->args[2], wanted}), position, none);
    return;
  }
}

std::vector<Addend> AddendsOf(const ScheduledStage& stage) {
  std::vector<Addend> all;
  if (stage.combiner == Combiner::kSum) {
    AddAddends(stage, stage.body, {}, false, all);
    return all;
  }
  Addend only{{}, {}, stage.body, IdentityOf(stage.combiner, stage.body->type)};
  TakeSelects(only.otherwise->float_value, only.value, only.matching);
  const bool is_extreme = stage.combiner == Combiner::kMin || stage.combiner == Combiner::kMax;
  if (is_extreme && only.value->op == Op::kSelect && only.value->args[2]->op == Op::kFloat) {
    only.present = std::move(only.matching);
    only.matching.clear();
    only.otherwise = only.value->args[2];
    TakeSelects(only.otherwise->float_value, only.value, only.matching);
    TakeEquality(stage, only);
  }
  return {std::move(only)};
}

// With the places that its conditions say in the stead of axes; nullopt where these say none.
std::optional<ScatteredTerms> AtPlaces(const ScheduledStage& stage, const Addend& addend) {
  std::vector<Expr> keys(stage.axes.size()), others;
  for (const Expr& condition : addend.matching) {
    if (const std::optional<NamedPlace> key = PlaceOf(stage, keys, condition)) {
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
  Expr present;
  for (const Expr& c : addend.present) present = AndAlso(present, c);
  return ScatteredTerms{.keys = keys,
                        .condition = AndAlso(all_of(addend.present), all_of(others)),
                        .value = at_place(addend.value),
                        .whole = nullptr,
                        .present = present,
                        .otherwise = addend.otherwise};
}

// A value as an integer; null where it is none.
Expr AsInteger(const Expr& value) {
  if (value->op == Op::kFloat) {
    const bool is_whole = std::abs(value->float_value) < INT32_MAX &&
                          std::trunc(value->float_value) == value->float_value;
    return is_whole ? Int(static_cast<int64_t>(value->float_value)) : nullptr;
  }
  if (value->op == Op::kCast && value->args[0]->type == DType::kInt64) return value->args[0];
  if (value->op != Op::kAdd && value->op != Op::kSub && value->op != Op::kNeg) return nullptr;
  ExprList integers;
  for (const Expr& arg : value->args) {
    integers.push_back(AsInteger(arg));
    if (integers.back() == nullptr) return nullptr;
  }
  return value->op == Op::kNeg ? Int(0) - integers[0] : MakeExpr(value->op, integers);
}

// Has integers be added up as such.
void FindIntegers(const ScheduledStage& stage, std::vector<ScatteredTerms>& all) {
  if (stage.combiner != Combiner::kSum) return;
  std::vector<Expr> integers;
  double largest = 0;
  for (const ScatteredTerms& terms : all) {
    integers.push_back(AsInteger(terms.value));
    if (integers.back() == nullptr) return;
    const Interval bounds = BoundsOf(integers.back());
    largest += static_cast<double>(std::max(-bounds.min, bounds.max));
  }
  if (largest * static_cast<double>(ExtentOf(stage.reduce_axes)) > INT32_MAX) return;
  for (size_t i = 0; i < all.size(); ++i) all[i].whole = integers[i];
}

// Can a term be added to so many elements side by side at once?
bool AddsVectors(const ScheduledStage& stage, int64_t elements) {
  if (elements == 1) return true;
  const std::vector<ScatteredTerms> all = ScatteredTermsOf(stage);
  const Var& last = stage.axes.back();
  const auto depends = [&](const Expr& e) { return e != nullptr && MentionsAny(e, {last.get()}); };
  const auto adds = [&](const ScatteredTerms& terms) {
    return terms.whole == nullptr && !depends(terms.condition) && !depends(terms.present) &&
           !terms.HasKey(stage.axes.size() - 1) &&
           std::none_of(terms.keys.begin(), terms.keys.end(), depends);
  };
  return stage.combiner == Combiner::kSum && last->extent % elements == 0 && !all.empty() &&
         std::all_of(all.begin(), all.end(), adds);
}

}  // namespace

bool ScatteredTerms::HasIdentity(Combiner combiner) const {
  return otherwise->op == Op::kFloat &&
         otherwise->float_value == IdentityOf(combiner, otherwise->type)->float_value;
}

std::vector<ScatteredTerms> ScatteredTermsOf(const ScheduledStage& stage) {
  if (!stage.is_reduction() || !ReadsIndices(stage.body)) return {};
  std::vector<ScatteredTerms> all;
  for (const Addend& addend : AddendsOf(stage)) {
    std::optional<ScatteredTerms> terms = AtPlaces(stage, addend);
    if (!terms) return {};
    for (size_t i = 0; !all.empty() && i < stage.axes.size(); ++i) {
      if (terms->HasKey(i) != all[0].HasKey(i)) return {};
    }
    all.push_back(*std::move(terms));
  }
  FindIntegers(stage, all);
  return all;
}

bool AddsIntegers(const ScheduledStage& stage) {
  const std::vector<ScatteredTerms> terms = ScatteredTermsOf(stage);
  return !terms.empty() && terms[0].whole != nullptr;
}

int64_t WidestUpdate(const Schedule& schedule, const ScheduledStage& stage) {
  int64_t widest = 4;
  for (const ScheduledStage* s : schedule.Together(stage)) {
    while (!AddsVectors(*s, widest)) widest /= 2;
  }
  return widest;
}

int64_t PlacesOfTerm(const ScheduledStage& stage) {
  const std::vector<ScatteredTerms> terms = ScatteredTermsOf(stage);
  int64_t places = 1;
  for (size_t i = 0; !terms.empty() && i < stage.axes.size(); ++i) {
    if (terms[0].HasKey(i)) places *= stage.axes[i]->extent;
  }
  return places;
}

}  // namespace heddle::search_space
