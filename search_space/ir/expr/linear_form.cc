#include "search_space/ir/expr/linear_form.h"

#include <cstdlib>

#include "base/math.h"

namespace heddle::search_space {
namespace {

Expr TermExpr(const Term& t, int64_t coef) {
  Expr e = t.x;
  if (t.div != 1) e = MakeBinary(Op::kDiv, std::move(e), Int(t.div));
  if (t.mod != 0) e = MakeBinary(Op::kMod, std::move(e), Int(t.mod));
  return coef == 1 ? e : MakeBinary(Op::kMul, std::move(e), Int(coef));
}

}  // namespace

Expr FromLinear(const Linear& l) {
  absl::InlinedVector<const Term*, 8> order;
  for (const Term& t : l.terms) order.push_back(&t);
  SortShort(order, [](const Term* a, const Term* b) {
    if ((a->coef > 0) != (b->coef > 0)) return a->coef > 0;
    return std::abs(a->coef) > std::abs(b->coef);
  });
  Expr sum;
  for (const Term* t : order) {
    if (sum == nullptr) {
      sum = TermExpr(*t, t->coef);
    } else {
      sum = t->coef > 0 ? MakeBinary(Op::kAdd, std::move(sum), TermExpr(*t, t->coef))
                        : MakeBinary(Op::kSub, std::move(sum), TermExpr(*t, -t->coef));
    }
  }
  if (sum == nullptr) return Int(l.constant);
  if (l.constant > 0) return MakeBinary(Op::kAdd, std::move(sum), Int(l.constant));
  return l.constant < 0 ? MakeBinary(Op::kSub, std::move(sum), Int(-l.constant)) : sum;
}

int CompareExprs(const Expr& a, const Expr& b) {
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
    if (int c = CompareExprs(a->args[i], b->args[i]); c != 0) return c;
  }
  return 0;
}

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

void Append(const Linear& l, int64_t factor, Linear& sum) {
  if (factor == 0) return;
  sum.constant += l.constant * factor;
  for (const Term& t : l.terms) {
    sum.terms.push_back(t);
    sum.terms.back().coef *= factor;
  }
}
void Append(Linear&& l, int64_t factor, Linear& sum) {
  if (factor == 0) return;
  sum.constant += l.constant * factor;
  for (Term& t : l.terms) {
    t.coef *= factor;
    sum.terms.push_back(std::move(t));
  }
}

void SplitMultiples(Linear l, int64_t g, Linear& quotient, Linear& rest) {
  for (Term& t : l.terms) {
    if (t.coef % g == 0) {
      t.coef /= g;
      quotient.terms.push_back(std::move(t));
    } else {
      rest.terms.push_back(std::move(t));
    }
  }
  quotient.constant = FloorDivide(l.constant, g);
  rest.constant = l.constant - quotient.constant * g;
}

}  // namespace heddle::search_space
