#include "search_space/ir/expr/simplify.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "search_space/ir/expr/linear.h"

namespace heddle::search_space {
namespace {

void AppendConjuncts(const Expr& condition, std::vector<Expr>& out) {
  if (condition == nullptr) return;
  if (condition->op == Op::kAnd) {
    AppendConjuncts(condition->args[0], out);
    AppendConjuncts(condition->args[1], out);
  } else if (!(condition->op == Op::kInt && condition->int_value != 0)) {
    out.push_back(condition);
  }
}

// The inequalities that an integer comparison stands for; empty for anything else.
absl::InlinedVector<Inequality, 2> Inequalities(const Expr& condition) {
  absl::InlinedVector<Inequality, 2> out;
  if (condition->op == Op::kNot && condition->args[0]->op == Op::kEq) {
    return Inequalities(MakeExpr(Op::kNe, condition->args[0]->args));
  }
  if (condition->args.size() != 2 || condition->args[0]->type != DType::kInt64) return out;
  const Expr &a = condition->args[0], &b = condition->args[1];
  if (condition->op == Op::kLt || condition->op == Op::kLe) {
    out.push_back(MakeInequality(condition->op, a, b));
  } else if (condition->op == Op::kEq) {
    out.push_back(MakeInequality(Op::kLe, a, b));
    out.push_back(MakeInequality(Op::kLe, b, a));
  } else if (condition->op == Op::kNe) {
    // At the end of what it can be, one side is beyond the other.
    const Interval difference = BoundsOf(Difference(a, b));
    if (difference.min == 0) out.push_back(MakeInequality(Op::kLt, b, a));
    if (difference.max == 0) out.push_back(MakeInequality(Op::kLt, a, b));
  }
  return out;
}

// Does `goal` follow from known <= 0? Tries goal - k * known <= 0 for the factors k >= 1 that make
// a term vanish.
bool Implies(const Inequality& known, const Inequality& goal) {
  if (MostOf(goal, 1, known, -1) <= 0) return true;
  for (const Term& k : known.terms) {
    for (const Term& g : goal.terms) {
      if (!StructurallyEqual(k.x, g.x) || k.div != g.div || k.mod != g.mod) continue;
      const int64_t factor = k.coef != 0 && g.coef % k.coef == 0 ? g.coef / k.coef : 0;
      if (factor > 1 && MostOf(goal, 1, known, -factor) <= 0) return true;
      // goal <= 0 is f * goal <= f - 1 in integers.
      const int64_t scale = g.coef != 0 && k.coef % g.coef == 0 ? k.coef / g.coef : 0;
      if (scale > 1 && MostOf(goal, scale, known, -1) <= scale - 1) return true;
    }
  }
  return false;
}

// How many times the term stands in the sum; 0 where that is no whole number.
int64_t TimesIn(const Linear& sum, const Term& term) {
  for (const Term& t : sum.terms) {
    if (!StructurallyEqual(t.x, term.x) || t.div != term.div || t.mod != term.mod) continue;
    return term.coef != 0 && t.coef % term.coef == 0 ? t.coef / term.coef : 0;
  }
  return 0;
}

bool ProvesInequality(const std::vector<Inequality>& known, const Inequality& goal,
                      int assumptions = 2) {
  if (BoundsOf(goal).max <= 0) return true;
  for (size_t i = 0; i < known.size(); ++i) {
    if (Implies(known[i], goal)) return true;
  }
  // rest + c * (x / d) <= 0, for c > 0, follows from d * rest + c * x <= d - 1. Of a single
  // quotient more is asked: rest <= x / d is d * rest <= x, and (x / d) % m is the quotient of x %
  // (d * m).
  const auto quotients =
      std::count_if(goal.terms.begin(), goal.terms.end(), [](const Term& t) { return t.div > 1; });
  for (size_t i = 0; !known.empty() && i < goal.terms.size(); ++i) {
    const Term& t = goal.terms[i];
    const bool simple = t.mod == 0 && t.coef > 0;
    if (t.div == 1 || t.coef < -1 || (!simple && quotients > 1)) continue;
    Linear rest = goal, dividend = ToLinear(t.x);
    rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(i));
    if (t.mod != 0) dividend = FloorMod(dividend, t.div * t.mod);
    Linear cleared = Add(Add(Linear{}, rest, t.div), dividend, t.coef);
    if (t.coef > 0) cleared.constant -= t.div - 1;
    if (ProvesInequality(known, cleared, assumptions)) return true;
  }
  if (assumptions == 1) return false;
  // Two assumptions together, such as y < h and x < w for a fused index, one of them as many times
  // as makes a term vanish.
  return std::any_of(known.begin(), known.end(), [&](const Inequality& k) {
    if (ProvesInequality(known, Add(goal, k, -1), 1)) return true;
    const int64_t times = k.terms.empty() ? 1 : TimesIn(goal, k.terms[0]);
    return times > 1 && ProvesInequality(known, Add(goal, k, -times), 1);
  });
}

// A fact about one quotient says something of what is divided, which other quotients may be of:
// c * (x / d) + rest <= 0 is c * x + d * rest <= 0 for c < 0, and that of x - (d - 1) for c > 0.
void AddDividend(const Inequality& fact, std::vector<Inequality>& known) {
  if (fact.terms.size() != 1 || fact.terms[0].div == 1 || fact.terms[0].mod != 0) return;
  const Term& t = fact.terms[0];
  Inequality about = Add(Linear{}, ToLinear(t.x), t.coef);
  about.constant += fact.constant * t.div - (t.coef > 0 ? t.coef * (t.div - 1) : 0);
  known.push_back(std::move(about));
}

// What is known, as inequalities once they are asked for.
class Facts {
 public:
  explicit Facts(absl::Span<const Expr> conditions) : conditions_(conditions) {}

  bool Prove(const Expr& goal) { return ProveDirectly(goal) || ProveByCases(goal); }

  bool ProveAll(absl::Span<const Expr> goals) {
    return std::all_of(goals.begin(), goals.end(), [&](const Expr& goal) { return Prove(goal); });
  }

 private:
  bool ProveDirectly(const Expr& goal) {
    for (const Expr& c : conditions_) {
      if (StructurallyEqual(c, goal)) return true;
    }
    if (goal->op == Op::kInt) return goal->int_value != 0;
    if (goal->op == Op::kOr) return ProveDirectly(goal->args[0]) || ProveDirectly(goal->args[1]);
    const auto inequalities = search_space::Inequalities(goal);
    return !inequalities.empty() &&
           std::all_of(inequalities.begin(), inequalities.end(),
                       [&](const Inequality& l) { return ProvesInequality(Known(), l); });
  }

  // Does it follow from one or the other of which one is known to hold? Of several such pairs one
  // is taken apart at a time: all together would be exponentially many cases.
  bool ProveByCases(const Expr& goal) {
    int left = kMostPairs;
    for (size_t i = 0; i < conditions_.size() && left > 0; ++i) {
      if (conditions_[i]->op != Op::kOr) continue;
      --left;
      std::vector<Expr> conditions(conditions_.begin(), conditions_.end());
      const auto proves = [&](const Expr& holds) {
        conditions[i] = holds;
        return Facts(conditions).ProveDirectly(goal);
      };
      const ExprList& either = conditions_[i]->args;
      if (std::all_of(either.begin(), either.end(), proves)) return true;
    }
    return false;
  }

  const std::vector<Inequality>& Known() {
    for (; counted_ < conditions_.size(); ++counted_) {
      for (Inequality& l : search_space::Inequalities(conditions_[counted_])) {
        AddDividend(l, known_);
        known_.push_back(std::move(l));
      }
    }
    return known_;
  }

  static constexpr int kMostPairs = 4;

  const absl::Span<const Expr> conditions_;
  std::vector<Inequality> known_;
  size_t counted_ = 0;  // conditions whose inequalities are among `known_`
};

bool Contains(const Variables& variables, const Variable* variable) {
  return std::find(variables.begin(), variables.end(), variable) != variables.end();
}

void AddVariables(const Expr& e, Variables& variables) {
  if (e->op == Op::kVar && !Contains(variables, e->var.get())) variables.push_back(e->var.get());
  for (const Expr& arg : e->args) AddVariables(arg, variables);
}

// The conjuncts of `assumptions` that are about variables of `goals`, or about variables of such
// ones: the others can prove nothing.
std::vector<Expr> RelevantFacts(const std::vector<Expr>& assumptions,
                                const std::vector<Expr>& goals) {
  std::vector<Expr> facts;
  for (const Expr& a : assumptions) AppendConjuncts(a, facts);
  std::vector<Variables> of_fact(facts.size());
  for (size_t i = 0; i < facts.size(); ++i) AddVariables(facts[i], of_fact[i]);
  Variables known;
  for (const Expr& goal : goals) AddVariables(goal, known);
  std::vector<bool> relevant(facts.size(), false);
  for (bool grew = true; grew;) {
    grew = false;
    for (size_t i = 0; i < facts.size(); ++i) {
      const auto is_known = [&](const Variable* v) { return Contains(known, v); };
      // A fact without variables is of an index that is read at a constant.
      const bool is_fixed = of_fact[i].empty();
      if (relevant[i] ||
          (!is_fixed && std::none_of(of_fact[i].begin(), of_fact[i].end(), is_known)))
        continue;
      for (const Variable* v : of_fact[i]) {
        if (!is_known(v)) known.push_back(v);
      }
      relevant[i] = grew = true;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (relevant[i]) facts[kept++] = facts[i];
  }
  facts.resize(kept);
  return facts;
}

// Variables that a fact bounds from above, v < c, become variables of that extent in `exprs`.
// False when there are none.
bool NarrowVariables(const std::vector<Expr>& facts, std::vector<Expr>& exprs) {
  std::vector<std::pair<Var, Expr>> narrowed;
  for (const Expr& f : facts) {
    if (f->op != Op::kLt || f->args[0]->op != Op::kVar || f->args[1]->op != Op::kInt) continue;
    const Var& v = f->args[0]->var;
    const int64_t extent = f->args[1]->int_value;
    if (extent < 1 || extent >= v->extent) continue;
    narrowed.emplace_back(v, VarExpr(MakeVar(v->name, extent)));
  }
  if (narrowed.empty()) return false;
  for (Expr& e : exprs) {
    e = Simplify(Substitute(e, [&](const Var& v) -> Expr {
      for (const auto& [from, to] : narrowed) {
        if (from == v) return to;
      }
      return nullptr;
    }));
  }
  return true;
}

enum class Dependence { kOuter, kRelaxed, kMixed };

Dependence DependenceOf(const Expr& e, absl::FunctionRef<bool(const Var&)> relaxed) {
  bool any_relaxed = false, any_outer = false;
  Visit(e, [&](const Expr& node) {
    if (node->op == Op::kVar) (relaxed(node->var) ? any_relaxed : any_outer) = true;
  });
  if (!any_relaxed) return Dependence::kOuter;
  return any_outer ? Dependence::kMixed : Dependence::kRelaxed;
}

using Simplified = absl::flat_hash_map<const ExprNode*, Expr>;

// `done`: what became of nodes that stand in more than one place.
Expr SimplifyAt(const Expr& e, const Var& var, const Expr& value, Simplified& done) {
  const bool shared = IsShared(e);
  if (shared) {
    if (const auto known = done.find(e.get()); known != done.end()) return known->second;
  }
  const auto replace = [&](const Var& v) { return v == var ? value : nullptr; };
  Expr simple =
      e->type == DType::kInt64 || e->type == DType::kBool
          ? Simplify(Substitute(e, replace))
          : MapDecided(e, [&](const Expr& arg) { return SimplifyAt(arg, var, value, done); });
  if (shared) done.emplace(e.get(), simple);
  return simple;
}

}  // namespace

Interval BoundsOf(const Expr& e) {
  if (e->type == DType::kBool) {
    const Expr s = Simplify(e);
    if (s->op == Op::kInt) return {s->int_value, s->int_value};
    return {0, 1};
  }
  return BoundsOf(ToLinear(e));
}

Expr Simplify(const Expr& e) { return Canonical(e); }

Expr SimplifyAt(const Expr& e, const Var& var, const Expr& value) {
  Simplified done;
  return SimplifyAt(e, var, value, done);
}

std::vector<Expr> Conjuncts(const Expr& condition) {
  std::vector<Expr> out;
  AppendConjuncts(condition, out);
  return out;
}

bool Proves(const std::vector<Expr>& assumptions, const Expr& condition) {
  std::vector<Expr> goals = Conjuncts(condition);
  // What is simplified, and true of all values, is the constant already.
  std::erase_if(
      goals, [](const Expr& goal) { return !goal->simplified.is_set() && Facts({}).Prove(goal); });
  if (goals.empty()) return true;
  // Where a condition is false nothing is.
  for (const Expr& assumption : assumptions) {
    if (IsInt(assumption, 0)) return true;
  }
  const std::vector<Expr> facts = RelevantFacts(assumptions, goals);
  if (facts.empty()) return false;
  if (Facts(facts).ProveAll(goals)) return true;
  std::vector<Expr> all = facts;
  all.insert(all.end(), goals.begin(), goals.end());
  if (!NarrowVariables(facts, all)) return false;
  const auto narrowed = absl::MakeConstSpan(all);
  return Facts(narrowed.first(facts.size())).ProveAll(narrowed.subspan(facts.size()));
}

Variables ConcernedBy(const std::vector<Expr>& assumptions, const Expr& condition) {
  Variables concerned;
  AddVariables(condition, concerned);
  for (const Expr& fact : RelevantFacts(assumptions, {condition})) AddVariables(fact, concerned);
  return concerned;
}

bool MentionsAny(const Expr& e, const Variables& variables) {
  if (e->op == Op::kVar) return Contains(variables, e->var.get());
  return std::any_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return MentionsAny(arg, variables); });
}

ModRem ModulusRemainder(const Expr& e) { return ModulusRemainder(ToLinear(e)); }

Region RegionOf(const Expr& e, absl::FunctionRef<bool(const Var&)> relaxed) {
  const Linear l = ToLinear(e);
  Linear base;
  base.constant = l.constant;
  int64_t span = 0;  // largest value minus smallest
  for (const Term& t : l.terms) {
    const Dependence dependence = DependenceOf(t.x, relaxed);
    if (dependence == Dependence::kOuter) {
      base.terms.push_back(t);
      continue;
    }
    if (dependence == Dependence::kMixed && t.mod == 0 && t.div > 1) {
      // floor((o + r) / d) lies between floor((o + min r) / d) and that plus ceil(span / d).
      const Region inner = RegionOf(t.x, relaxed);
      const int64_t reach = (inner.extent - 1 + t.div - 1) / t.div;
      const Linear low = FloorDiv(ToLinear(inner.base), t.div);
      base = Add(base, low, t.coef);
      if (t.coef < 0) base.constant += t.coef * reach;
      span += std::abs(t.coef) * reach;
      continue;
    }
    const Interval b = BoundsOf(t);
    base.constant += b.min;
    span += b.max - b.min;
  }
  return {FromLinear(Add(base, Linear{})), span + 1};
}

Expr AndAlso(const Expr& a, const Expr& b) {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  return Simplify(a && b);
}

}  // namespace heddle::search_space
