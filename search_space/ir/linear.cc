#include "search_space/ir/linear.h"

#include <algorithm>
#include <numeric>

#include "base/math.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kLimit = int64_t{1} << 62;

int64_t Clamp(__int128 v) {
  return static_cast<int64_t>(std::clamp<__int128>(v, -__int128{kLimit}, __int128{kLimit}));
}

// A total order of expressions that does not depend on addresses.
int Compare(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  if (a->op != b->op) return a->op < b->op ? -1 : 1;
  if (a->type != b->type) return a->type < b->type ? -1 : 1;
  if (a->op == Op::kVar) {
    return a->var->id == b->var->id ? 0 : (a->var->id < b->var->id ? -1 : 1);
  }
  if (a->int_value != b->int_value) return a->int_value < b->int_value ? -1 : 1;
  if (a->float_value != b->float_value) return a->float_value < b->float_value ? -1 : 1;
  if (a->buffer != b->buffer) {
    const int c = a->buffer->name.compare(b->buffer->name);
    return c != 0 ? c : (a->buffer < b->buffer ? -1 : 1);
  }
  if (a->args.size() != b->args.size()) return a->args.size() < b->args.size() ? -1 : 1;
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (int c = Compare(a->args[i], b->args[i]); c != 0) return c;
  }
  return 0;
}

int CompareKeys(const Term& a, const Term& b) {
  if (int c = Compare(a.x, b.x); c != 0) return c;
  if (a.div != b.div) return a.div < b.div ? -1 : 1;
  if (a.mod != b.mod) return a.mod < b.mod ? -1 : 1;
  return 0;
}

// The two identities that undo a division, for terms of one x:
//   c*d*((x/(a*d)) % m) + c*((x/a) % d)  ->  c*((x/a) % (d*m))      (m = 0 meaning no modulo)
//   c*((x/a) % m) - c*d*((x/(a*d)) % (m/d))  ->  c*((x/a) % d)
// Returns true when `low` (the smaller divisor) took `high` in.
bool MergeTerms(Term& low, const Term& high) {
  if (high.div == low.div || high.div % low.div != 0) return false;
  const int64_t d = high.div / low.div;
  if (low.mod == d && high.coef == low.coef * d) {
    low.mod = high.mod == 0 ? 0 : high.mod * d;
    return true;
  }
  const bool same_range = low.mod == 0 ? high.mod == 0 : high.mod * d == low.mod;
  if (same_range && high.coef == -low.coef * d) {
    low.mod = d;
    return true;
  }
  return false;
}

// Adds factor * l, terms as they come.
void Append(const Linear& l, int64_t factor, Linear& sum) {
  if (factor == 0) return;
  sum.constant += l.constant * factor;
  for (const Term& t : l.terms) {
    sum.terms.push_back(t);
    sum.terms.back().coef *= factor;
  }
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
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return CompareKeys(a, b) < 0; });
  size_t kept = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (kept > 0 && CompareKeys(terms[kept - 1], terms[i]) == 0) {
      terms[kept - 1].coef += terms[i].coef;
    } else {
      if (kept > 0 && terms[kept - 1].coef == 0) --kept;
      if (kept != i) terms[kept] = std::move(terms[i]);
      ++kept;
    }
  }
  if (kept > 0 && terms[kept - 1].coef == 0) --kept;
  terms.resize(kept);
  for (size_t i = 0; i + 1 < terms.size(); ++i) {
    for (size_t j = i + 1; j < terms.size() && Compare(terms[i].x, terms[j].x) == 0; ++j) {
      if (!MergeTerms(terms[i], terms[j])) continue;
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
      Flatten(l, i);
      Normalize(l);
      return;
    }
  }
}

// c*S - c*d*(S/d) -> c*(S % d) for a sum S whose terms stand in `l` one by one, or a remainder S.
void MergeSums(Linear& l) {
  for (size_t i = 0; i < l.terms.size(); ++i) {
    const Term& t = l.terms[i];
    if (t.div == 1 || t.mod != 0 || t.coef % t.div != 0) continue;
    if (!IsSum(t.x) && t.x->op != Op::kMod) continue;
    const int64_t c = -t.coef / t.div;
    const Linear sum = ToLinear(t.x);
    const bool all = std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& s) {
      return std::any_of(l.terms.begin(), l.terms.end(), [&](const Term& other) {
        return CompareKeys(s, other) == 0 && other.coef == c * s.coef;
      });
    });
    if (!all) continue;
    l.terms[i].mod = t.div;
    l.terms[i].div = 1;
    l.terms[i].coef = c;
    l = Add(l, sum, -c);
    return;
  }
}

Linear Opaque(Expr x) {
  Linear l;
  l.terms.push_back(Term{.x = std::move(x)});
  return l;
}

Linear Constant(int64_t value) {
  Linear l;
  l.constant = value;
  return l;
}

// The part of `l` whose coefficients (and constant) are multiples of g, divided by g, and the rest.
void SplitMultiples(const Linear& l, int64_t g, Linear& quotient, Linear& rest) {
  for (const Term& t : l.terms) {
    if (t.coef % g == 0) {
      quotient.terms.push_back(t);
      quotient.terms.back().coef /= g;
    } else {
      rest.terms.push_back(t);
    }
  }
  quotient.constant = FloorDivide(l.constant, g);
  rest.constant = l.constant - quotient.constant * g;
}

// Finds the largest divisor g > 1 of d for which l = g * high + low with low in [0, g).
bool FindSplit(const Linear& l, int64_t d, int64_t& g, Linear& high, Linear& low) {
  absl::InlinedVector<int64_t, 8> candidates;
  for (const Term& t : l.terms) candidates.push_back(std::gcd(t.coef, d));
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  for (int64_t candidate : candidates) {
    if (candidate <= 1) break;
    Linear q, r;
    SplitMultiples(l, candidate, q, r);
    const Interval b = BoundsOf(r);
    if (b.min < 0 || b.max >= candidate) continue;
    g = candidate;
    high = std::move(q);
    low = std::move(r);
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

// Bounds of an x that stands in a term.
Interval BoundsOfAtom(const Expr& x) {
  switch (x->op) {
    case Op::kVar:
      return {0, x->var->extent - 1};
    case Op::kMin:
    case Op::kMax:
      return MinMaxOf(x->op, BoundsOf(x->args[0]), BoundsOf(x->args[1]));
    case Op::kSelect: {
      const Interval a = BoundsOf(x->args[1]), b = BoundsOf(x->args[2]);
      return {std::min(a.min, b.min), std::max(a.max, b.max)};
    }
    case Op::kMul: {
      const Interval a = BoundsOf(x->args[0]), b = BoundsOf(x->args[1]);
      const __int128 p[] = {__int128{a.min} * b.min, __int128{a.min} * b.max,
                            __int128{a.max} * b.min, __int128{a.max} * b.max};
      return {Clamp(*std::min_element(p, p + 4)), Clamp(*std::max_element(p, p + 4))};
    }
    case Op::kInt:
    case Op::kAdd:
    case Op::kSub:
    case Op::kDiv:
    case Op::kMod:
      return BoundsOf(ToLinear(x));
    case Op::kLoad:  // of an index input
      return {INT32_MIN, INT32_MAX};
    default:
      return {-kLimit, kLimit};
  }
}

Expr TermExpr(const Term& t, int64_t coef) {
  Expr e = t.x;
  if (t.div != 1) e = e / Int(t.div);
  if (t.mod != 0) e = e % Int(t.mod);
  return coef == 1 ? e : e * Int(coef);
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
  return Opaque(MakeExpr(e->op, {FromLinear(a), FromLinear(b)}));
}

}  // namespace

Interval BoundsOf(const Term& t) {
  Interval b = BoundsOfAtom(t.x);
  b = {FloorDivide(b.min, t.div), FloorDivide(b.max, t.div)};
  if (t.mod != 0) {
    const int64_t period = FloorDivide(b.min, t.mod);
    if (period == FloorDivide(b.max, t.mod)) {
      b = {b.min - period * t.mod, b.max - period * t.mod};
    } else {
      b = {0, t.mod - 1};
    }
  }
  const __int128 x = __int128{b.min} * t.coef, y = __int128{b.max} * t.coef;
  return {Clamp(std::min(x, y)), Clamp(std::max(x, y))};
}

Interval BoundsOf(const Linear& l) {
  __int128 low = l.constant, high = l.constant;
  for (const Term& t : l.terms) {
    const Interval b = BoundsOf(t);
    low += b.min;
    high += b.max;
  }
  return {Clamp(low), Clamp(high)};
}

Linear Add(const Linear& a, const Linear& b, int64_t b_factor) {
  Linear sum = a;
  Append(b, b_factor, sum);
  Normalize(sum);
  MergeSums(sum);
  return sum;
}

Linear FloorDiv(const Linear& a, int64_t d) {
  if (d == 1) return a;
  Linear quotient, rest;
  SplitMultiples(a, d, quotient, rest);  // (d*q + r) / d = q + r / d
  const Interval b = BoundsOf(rest);
  if (FloorDivide(b.min, d) == FloorDivide(b.max, d)) {
    return Add(quotient, Constant(FloorDivide(b.min, d)));
  }
  int64_t g = 1;
  Linear high, low;
  if (FindSplit(rest, d, g, high, low)) {  // (g*h + l) / d = h / (d/g) for l in [0, g)
    return Add(quotient, FloorDiv(high, d / g));
  }
  if (IsSingleTerm(rest)) {
    Term t = rest.terms[0];
    if (t.mod == 0 || t.mod % d == 0) {  // ((x/a) % m) / d = (x/(a*d)) % (m/d) when d divides m
      t.div *= d;
      if (t.mod != 0) t.mod /= d;
      if (t.mod == 1) return quotient;
      Linear divided;
      divided.terms.push_back(std::move(t));
      return Add(quotient, divided);
    }
  }
  Linear divided = Opaque(FromLinear(rest));
  divided.terms[0].div = d;
  return Add(quotient, divided);
}

Linear FloorMod(const Linear& a, int64_t d) {
  if (d == 1) return Constant(0);
  Linear quotient, rest;
  SplitMultiples(a, d, quotient, rest);  // multiples of d vanish
  const Interval b = BoundsOf(rest);
  const int64_t period = FloorDivide(b.min, d);
  if (period == FloorDivide(b.max, d)) return Add(rest, Constant(-period * d));
  int64_t g = 1;
  Linear high, low;
  if (FindSplit(rest, d, g, high, low)) {  // (g*h + l) % d = g * (h % (d/g)) + l for l in [0, g)
    return Add(low, FloorMod(high, d / g), g);
  }
  if (IsSingleTerm(rest)) {
    Term t = rest.terms[0];
    if (t.mod == 0 || t.mod % d == 0) {  // ((x/a) % m) % d = (x/a) % d when d divides m
      if (t.div == 1 && t.mod != 0) return FloorMod(ToLinear(t.x), d);
      t.mod = d;
      Linear reduced;
      reduced.terms.push_back(std::move(t));
      return reduced;
    }
  }
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
      for (const Expr& arg : e->args) args.push_back(Simplify(arg));
      auto node = std::make_shared<ExprNode>(*e);
      node->args = std::move(args);
      return Opaque(node);
    }
  }
}

Expr FromLinear(const Linear& l) {
  absl::InlinedVector<const Term*, 8> order;
  for (const Term& t : l.terms) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const Term* a, const Term* b) {
    if ((a->coef > 0) != (b->coef > 0)) return a->coef > 0;
    return std::abs(a->coef) > std::abs(b->coef);
  });
  Expr sum;
  for (const Term* t : order) {
    if (sum == nullptr) {
      sum = TermExpr(*t, t->coef);
    } else {
      sum = t->coef > 0 ? sum + TermExpr(*t, t->coef) : sum - TermExpr(*t, -t->coef);
    }
  }
  if (sum == nullptr) return Int(l.constant);
  if (l.constant > 0) return sum + Int(l.constant);
  return l.constant < 0 ? sum - Int(-l.constant) : sum;
}

}  // namespace heddle::search_space
