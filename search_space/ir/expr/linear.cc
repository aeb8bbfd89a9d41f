#include "search_space/ir/expr/linear.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/math.h"
#include "search_space/ir/expr/make_node.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kLimit = int64_t{1} << 62;

int64_t Clamp(__int128 v) {
  return static_cast<int64_t>(std::clamp<__int128>(v, -__int128{kLimit}, __int128{kLimit}));
}

bool IsSum(const Expr& x) { return x->op == Op::kAdd || x->op == Op::kSub || x->op == Op::kMul; }

// A whole sum in the place of a term gives its own terms.
void Flatten(Linear& l, size_t i) {
  const Term t = l.terms[i];
  if (t.div != 1 || t.mod != 0 || !IsSum(t.x)) return;
  l.terms.erase(l.terms.begin() + static_cast<std::ptrdiff_t>(i));
  Append(ToLinear(t.x), t.coef, l);
}

void Normalize(Linear& l) {
  auto& terms = l.terms;
  SortShort(terms, [](const Term& a, const Term& b) { return CompareKeys(a, b) < 0; });
  size_t kept = 0;
  bool may_merge = false;  // are there several terms of one x?
  for (size_t i = 0; i < terms.size(); ++i) {
    if (kept > 0 && CompareTerms(terms[kept - 1].x, terms[i].x) == 0) {
      if (terms[kept - 1].div == terms[i].div && terms[kept - 1].mod == terms[i].mod) {
        terms[kept - 1].coef += terms[i].coef;
        continue;
      }
      may_merge = true;
    }
    if (kept > 0 && terms[kept - 1].coef == 0) --kept;
    if (kept != i) terms[kept] = std::move(terms[i]);
    ++kept;
  }
  if (kept > 0 && terms[kept - 1].coef == 0) --kept;
  if (kept != terms.size()) terms.resize(kept);
  for (size_t i = 0; may_merge && i + 1 < terms.size(); ++i) {
    for (size_t j = i + 1; j < terms.size() && CompareTerms(terms[i].x, terms[j].x) == 0; ++j) {
      if (!MergeTerms(terms[i], terms[j])) continue;
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
      Flatten(l, i);
      Normalize(l);
      return;
    }
  }
}

Linear Opaque(Expr x) {
  Linear l;
  l.terms.push_back(Term{.x = std::move(x)});
  return l;
}

// May MergeSums apply to a sum with the term?
bool IsPartOfQuotient(const Term& t, int64_t coef) {
  if (t.div == 1 || t.mod != 0 || coef % t.div != 0) return false;
  return IsSum(t.x) || t.x->op == Op::kMod;
}

// In a sum that is taken modulo d, coef * ((x / a) % m) is coef * (x / a) where d divides coef * m.
bool IsPeriodic(const Term& t, int64_t d) {
  int64_t step = 0;
  return t.mod != 0 && !__builtin_mul_overflow(t.coef, t.mod, &step) && step % d == 0;
}

// Is such a remainder a summand of coef * e? Asked before a sum is looked into, which takes as long
// as it is deep.
bool HasPeriodic(const Expr& e, int64_t coef, int64_t d) {
  const bool is_product = e->op == Op::kMul && e->args[1]->op == Op::kInt;
  if (is_product || e->op == Op::kMod) {
    int64_t product = 0;
    if (__builtin_mul_overflow(coef, e->args[1]->int_value, &product)) return false;
    return is_product ? HasPeriodic(e->args[0], product, d) : product % d == 0;
  }
  if (e->op != Op::kAdd && e->op != Op::kSub && e->op != Op::kNeg) return false;
  return std::any_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return HasPeriodic(arg, coef, d); });
}

// Takes the remainders of such terms out of a sum of which only the remainder by d counts. False
// where there are none.
bool DropRemainders(Linear& l, int64_t d) {
  const auto is_periodic = [&](const Term& t) { return IsPeriodic(t, d); };
  if (std::none_of(l.terms.begin(), l.terms.end(), is_periodic)) return false;
  Linear sum;
  sum.constant = l.constant;
  for (Term& t : l.terms) {
    if (!is_periodic(t)) {
      sum.terms.push_back(std::move(t));
      continue;
    }
    t.mod = 0;
    Append(t.div == 1 ? ToLinear(t.x) : Opaque(t.x), t.coef, sum);
    if (t.div != 1) sum.terms.back().div = t.div;
  }
  l = Add(Linear{}, sum);
  return true;
}

// Do all terms of c * sum stand in `l`?
bool Contains(const Linear& l, const Linear& sum, int64_t c) {
  return std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& s) {
    return std::any_of(l.terms.begin(), l.terms.end(), [&](const Term& other) {
      return CompareKeys(s, other) == 0 && other.coef == c * s.coef;
    });
  });
}

// For a sum S whose terms stand in `l` one by one, or a remainder S:
//   c*S - c*d*(S/d)      ->  c*(S % d)
//   c*d*(S/d) + c*(S%d)  ->  c*S         where S % d is not one of S any more (DropRemainders)
void MergeSums(Linear& l) {
  for (size_t i = 0; i < l.terms.size() && l.terms.size() > 1; ++i) {
    const Term& t = l.terms[i];
    if (!IsPartOfQuotient(t, t.coef)) continue;
    const int64_t d = t.div, c = -t.coef / d;
    const Linear sum = ToLinear(t.x);
    const bool is_remainder = Contains(l, sum, c);
    const bool may_be_whole =
        !is_remainder && std::any_of(sum.terms.begin(), sum.terms.end(),
                                     [&](const Term& s) { return IsPeriodic(s, d); });
    if (!is_remainder && !may_be_whole) continue;
    const Linear remainder = FloorMod(sum, d);
    if (!is_remainder && !Contains(l, remainder, -c)) continue;
    l.terms.erase(l.terms.begin() + static_cast<std::ptrdiff_t>(i));
    if (is_remainder) {
      Append(remainder, c, l);
      l = Add(std::move(l), sum, -c);
    } else {
      Append(sum, -c, l);
      l = Add(std::move(l), remainder, c);
    }
    return;
  }
}

Linear Constant(int64_t value) {
  Linear l;
  l.constant = value;
  return l;
}

// Bounds of the rest.
Interval BoundsOfRest(const Linear& l, int64_t g) {
  __int128 low = l.constant - FloorDivide(l.constant, g) * g, high = low;
  for (const Term& t : l.terms) {
    if (t.coef % g == 0) continue;
    const Interval b = BoundsOf(t);
    low += b.min;
    high += b.max;
  }
  return {Clamp(low), Clamp(high)};
}

// Finds the largest divisor g > 1 of d for which l = g * high + low with low in [0, g), and takes
// `l` apart so.
bool FindSplit(Linear& l, int64_t d, int64_t& g, Linear& high, Linear& low) {
  absl::InlinedVector<int64_t, 8> candidates;
  for (const Term& t : l.terms) candidates.push_back(std::gcd(t.coef, d));
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  for (int64_t candidate : candidates) {
    if (candidate <= 1) break;
    const Interval b = BoundsOfRest(l, candidate);
    if (b.min < 0 || b.max >= candidate) continue;
    g = candidate;
    SplitMultiples(std::move(l), g, high, low);
    return true;
  }
  return false;
}

bool IsSingleTerm(const Linear& l) {
  return l.terms.size() == 1 && l.terms[0].coef == 1 && l.constant == 0;
}

Interval MinMaxOf(Op op, Interval a, Interval b) {
  return op == Op::kMin ? Interval{std::min(a.min, b.min), std::min(a.max, b.max)}
                        : Interval{std::max(a.min, b.min), std::max(a.max, b.max)};
}

Interval BoundsOfInteger(const Expr& e) { return BoundsOf(ToLinear(e)); }

// Bounds of an x that stands in a term.
Interval BoundsOfAtom(const Expr& x) {
  switch (x->op) {
    case Op::kVar:
      return {0, x->var->extent - 1};
    case Op::kMin:
    case Op::kMax:
      return MinMaxOf(x->op, BoundsOfInteger(x->args[0]), BoundsOfInteger(x->args[1]));
    case Op::kSelect: {
      const Interval a = BoundsOfInteger(x->args[1]), b = BoundsOfInteger(x->args[2]);
      return {std::min(a.min, b.min), std::max(a.max, b.max)};
    }
    case Op::kMul: {
      const Interval a = BoundsOfInteger(x->args[0]), b = BoundsOfInteger(x->args[1]);
      const __int128 p[] = {__int128{a.min} * b.min, __int128{a.min} * b.max,
                            __int128{a.max} * b.min, __int128{a.max} * b.max};
      return {Clamp(*std::min_element(p, p + 4)), Clamp(*std::max_element(p, p + 4))};
    }
    case Op::kInt:
    case Op::kAdd:
    case Op::kSub:
    case Op::kDiv:
    case Op::kMod:
      return BoundsOfInteger(x);
    case Op::kLoad:  // of an index input
      return {INT32_MIN, INT32_MAX};
    default:
      return {-kLimit, kLimit};
  }
}

// Adds factor * e to `sum`, the summands of sums one by one.
void AppendSummands(const Expr& e, int64_t factor, Linear& sum) {
  switch (e->op) {
    case Op::kInt:
      sum.constant += factor * e->int_value;
      return;
    case Op::kVar:
      if (e->var->extent > 1) sum.terms.push_back(Term{.x = e, .coef = factor});
      return;
    case Op::kAdd:
    case Op::kSub:
      AppendSummands(e->args[0], factor, sum);
      AppendSummands(e->args[1], e->op == Op::kAdd ? factor : -factor, sum);
      return;
    case Op::kNeg:
      return AppendSummands(e->args[0], -factor, sum);
    case Op::kMul:
      if (e->args[1]->op == Op::kInt) {
        return AppendSummands(e->args[0], factor * e->args[1]->int_value, sum);
      }
      break;
    default:
      break;
  }
  Append(ToLinear(e), factor, sum);
}

Linear ProductToLinear(const Expr& e) {
  if (e->args[1]->op == Op::kInt) return WeightedSum({e}, {1});

  Linear a = ToLinear(e->args[0]), b = ToLinear(e->args[1]);
  if (a.terms.empty()) std::swap(a, b);
  if (b.terms.empty()) return Add(Linear{}, a, b.constant);
  return Opaque(FromLinear(a) * FromLinear(b));
}

Linear MinMaxToLinear(const Expr& e) {
  Linear a = ToLinear(e->args[0]), b = ToLinear(e->args[1]);
  const Interval difference = BoundsOf(Add(a, b, -1));
  const bool a_is_less = difference.max <= 0, b_is_less = difference.min >= 0;
  if (a_is_less || b_is_less) {
    return a_is_less == (e->op == Op::kMin) ? std::move(a) : std::move(b);
  }
  return Opaque(MakeBinary(e->op, FromLinear(a), FromLinear(b)));
}

}  // namespace

namespace {

// Of coef times what the term has without its own coefficient.
Interval BoundsOf(const Term& t, int64_t coef) {
  Interval b = BoundsOfAtom(t.x);
  if (t.div != 1) b = {FloorDivide(b.min, t.div), FloorDivide(b.max, t.div)};
  if (t.mod != 0) {
    const int64_t period = FloorDivide(b.min, t.mod);
    if (period == FloorDivide(b.max, t.mod)) {
      b = {b.min - period * t.mod, b.max - period * t.mod};
    } else {
      b = {0, t.mod - 1};
    }
  }
  const __int128 x = __int128{b.min} * coef, y = __int128{b.max} * coef;
  return {Clamp(std::min(x, y)), Clamp(std::max(x, y))};
}

}  // namespace

Interval BoundsOf(const Term& t) { return BoundsOf(t, t.coef); }

Interval BoundsOf(const Linear& l) {
  __int128 low = l.constant, high = l.constant;
  for (const Term& t : l.terms) {
    const Interval b = BoundsOf(t);
    low += b.min;
    high += b.max;
  }
  return {Clamp(low), Clamp(high)};
}

int64_t MostOf(const Linear& a, int64_t a_factor, const Linear& b, int64_t b_factor) {
  __int128 most = a.constant * a_factor + b.constant * b_factor;
  const Expr* last = nullptr;  // the x of the last term
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    const int order = j == b.terms.size()   ? -1
                      : i == a.terms.size() ? 1
                                            : CompareKeys(a.terms[i], b.terms[j]);
    const Term& t = order <= 0 ? a.terms[i] : b.terms[j];
    const int64_t coef = (order <= 0 ? a.terms[i].coef * a_factor : 0) +
                         (order >= 0 ? b.terms[j].coef * b_factor : 0);
    // Terms of one x, or a sum and its quotient, may become one.
    if ((last != nullptr && CompareTerms(*last, t.x) == 0) || IsPartOfQuotient(t, coef)) {
      return BoundsOf(Add(a_factor == 1 ? a : Add(Linear{}, a, a_factor), b, b_factor)).max;
    }
    if (coef != 0) most += BoundsOf(t, coef).max;
    last = &t.x;
    i += order <= 0 ? 1 : 0;
    j += order >= 0 ? 1 : 0;
  }
  return Clamp(most);
}

Linear Add(Linear a, const Linear& b, int64_t b_factor) {
  Append(b, b_factor, a);
  Normalize(a);
  MergeSums(a);
  return a;
}

Linear FloorDiv(Linear a, int64_t d) {
  if (d == 1) return a;
  Linear quotient, rest;
  SplitMultiples(std::move(a), d, quotient, rest);  // (d*q + r) / d = q + r / d
  const Interval b = BoundsOf(rest);
  if (FloorDivide(b.min, d) == FloorDivide(b.max, d)) {
    return Add(std::move(quotient), Constant(FloorDivide(b.min, d)));
  }
  int64_t g = 1;
  Linear high, low;
  if (FindSplit(rest, d, g, high, low)) {  // (g*h + l) / d = h / (d/g) for l in [0, g)
    return Add(std::move(quotient), FloorDiv(std::move(high), d / g));
  }
  if (IsSingleTerm(rest)) {
    Term& t = rest.terms[0];
    int64_t div = 0;
    const bool is_divisor = !__builtin_mul_overflow(t.div, d, &div);
    // ((x/a) % m) / d = (x/(a*d)) % (m/d) when d divides m
    if (is_divisor && (t.mod == 0 || t.mod % d == 0)) {
      t.div = div;
      if (t.mod != 0) t.mod /= d;
      if (t.mod == 1) return quotient;
      return Add(std::move(quotient), rest);
    }
  }
  Linear divided = Opaque(FromLinear(rest));
  divided.terms[0].div = d;
  return Add(std::move(quotient), divided);
}

Linear FloorMod(Linear a, int64_t d) {
  if (d == 1) return Constant(0);
  Linear quotient, rest;
  SplitMultiples(std::move(a), d, quotient, rest);  // multiples of d vanish
  const Interval b = BoundsOf(rest);
  const int64_t period = FloorDivide(b.min, d);
  if (period == FloorDivide(b.max, d)) return Add(std::move(rest), Constant(-period * d));
  int64_t g = 1;
  Linear high, low;
  if (FindSplit(rest, d, g, high, low)) {  // (g*h + l) % d = g * (h % (d/g)) + l for l in [0, g)
    return Add(std::move(low), FloorMod(std::move(high), d / g), g);
  }
  if (IsSingleTerm(rest)) {
    Term& t = rest.terms[0];
    if (t.mod == 0 || t.mod % d == 0) {  // ((x/a) % m) % d = (x/a) % d when d divides m
      if (t.div == 1 && t.mod != 0) return FloorMod(ToLinear(t.x), d);
      t.mod = d;
      // Of (S / a) % d only the remainder of S by a*d counts.
      int64_t counted = 0;
      if (__builtin_mul_overflow(t.div, d, &counted) || !HasPeriodic(t.x, 1, counted)) return rest;
      Linear sum = ToLinear(t.x);
      if (!DropRemainders(sum, counted)) return rest;
      return FloorMod(FloorDiv(std::move(sum), t.div), d);
    }
  }
  if (DropRemainders(rest, d)) return FloorMod(std::move(rest), d);
  Linear reduced = Opaque(FromLinear(rest));
  reduced.terms[0].mod = d;
  return reduced;
}

Linear WeightedSum(absl::Span<const Expr> summands, absl::Span<const int64_t> weights) {
  Linear sum;
  for (size_t i = 0; i < summands.size(); ++i) AppendSummands(summands[i], weights[i], sum);
  Normalize(sum);
  MergeSums(sum);
  return sum;
}

Linear ToLinear(const Expr& e) {
  switch (e->op) {
    case Op::kInt:
      return Constant(e->int_value);
    case Op::kVar:
      return e->var->extent == 1 ? Constant(0) : Opaque(e);
    case Op::kAdd:
    case Op::kSub:
    case Op::kNeg:
      return WeightedSum({e}, {1});
    case Op::kMul:
      return ProductToLinear(e);
    case Op::kDiv:
      return FloorDiv(ToLinear(e->args[0]), e->args[1]->int_value);
    case Op::kMod:
      return FloorMod(ToLinear(e->args[0]), e->args[1]->int_value);
    case Op::kMin:
    case Op::kMax:
      return MinMaxToLinear(e);
    default: {
      ExprList args;
      for (const Expr& arg : e->args) args.push_back(Canonical(arg));
      auto node = MakeNode<ExprNode>(*e);
      node->args = std::move(args);
      return Opaque(node);
    }
  }
}

ModRem ModulusRemainder(const Linear& l) {
  int64_t modulus = 0;
  for (const Term& t : l.terms) modulus = std::gcd(modulus, t.coef);
  modulus = std::abs(modulus);
  if (modulus == 0) return {0, l.constant};
  return {modulus, l.constant - FloorDivide(l.constant, modulus) * modulus};
}

Inequality MakeInequality(Op op, const Expr& a, const Expr& b) {
  Inequality l = Difference(a, b);
  if (op == Op::kLt) l.constant += 1;
  int64_t g = 0;
  for (const Term& t : l.terms) g = std::gcd(g, t.coef);
  if (g > 1) {
    for (Term& t : l.terms) t.coef /= g;
    l.constant = -FloorDivide(-l.constant, g);  // ceil(c / g)
  }
  return l;
}

namespace {

// "positive terms < negative terms + constant", as a person would write it.
Expr InequalityExpr(const Inequality& l) {
  Linear left, right;
  for (const Term& t : l.terms) {
    (t.coef > 0 ? left : right).terms.push_back(t);
  }
  for (Term& t : right.terms) t.coef = -t.coef;
  if (left.terms.empty()) {
    left.constant = l.constant;
    return FromLinear(left) <= FromLinear(right);
  }
  right.constant = 1 - l.constant;
  return FromLinear(left) < FromLinear(right);
}

Expr SimplifyComparison(const Expr& e) {
  if (e->op == Op::kLt || e->op == Op::kLe) {
    const Inequality l = MakeInequality(e->op, e->args[0], e->args[1]);
    const Interval b = BoundsOf(l);
    if (b.max <= 0) return Bool(true);
    if (b.min > 0) return Bool(false);
    return InequalityExpr(l);
  }
  const Linear l = Difference(e->args[0], e->args[1]);
  const Interval b = BoundsOf(l);
  const bool never = b.min > 0 || b.max < 0, always = b.min == 0 && b.max == 0;
  if (never || always) return Bool(always == (e->op == Op::kEq));
  return MakeExpr(e->op, {Canonical(e->args[0]), Canonical(e->args[1])});
}

Expr SimplifyLogic(const Expr& e) {
  if (e->op == Op::kNot) {
    const Expr a = Canonical(e->args[0]);
    if (a->op == Op::kInt) return Bool(a->int_value == 0);
    if (a->op == Op::kNot) return a->args[0];
    const bool integers = !a->args.empty() && a->args[0]->type == DType::kInt64;
    if (integers && a->op == Op::kLt) return Canonical(a->args[1] <= a->args[0]);
    if (integers && a->op == Op::kLe) return Canonical(a->args[1] < a->args[0]);
    return a == e->args[0] ? e : MakeExpr(Op::kNot, {a});
  }
  const Expr a = Canonical(e->args[0]), b = Canonical(e->args[1]);
  const bool is_and = e->op == Op::kAnd;
  for (int side = 0; side < 2; ++side) {
    const Expr& x = side == 0 ? a : b;
    const Expr& other = side == 0 ? b : a;
    if (x->op == Op::kInt) return (x->int_value != 0) == is_and ? other : x;
  }
  if (StructurallyEqual(a, b)) return a;
  return a == e->args[0] && b == e->args[1] ? e : MakeExpr(e->op, {a, b});
}

Expr SimplifyNode(const Expr& e) {
  if (e->op == Op::kInt || e->op == Op::kFloat) return e;
  if (e->op == Op::kVar && e->var->extent > 1) return e;
  if (e->type == DType::kInt64 && e->op != Op::kSelect) return FromLinear(ToLinear(e));
  const bool compares_ints = e->args.size() == 2 && e->args[0]->type == DType::kInt64;
  switch (e->op) {
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
      if (compares_ints) return SimplifyComparison(e);
      break;
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot:
      return SimplifyLogic(e);
    default:
      break;
  }
  return MapDecided(e, [](const Expr& arg) { return Canonical(arg); });
}

}  // namespace

Expr Canonical(const Expr& e) {
  if (e->simplified.is_set()) return e;
  Expr simple = SimplifyNode(e);
  simple->simplified.Set();
  return simple;
}

bool HasQuotient(const Expr& e) {
  bool found = false;
  Visit(e, [&](const Expr& node) { found = found || node->op == Op::kDiv; });
  return found;
}

}  // namespace heddle::search_space
