#include "search_space/schedule/analysis/operands.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/narrow_expr.h"
#include "search_space/ir/expr/queries.h"

namespace heddle::search_space {
namespace {

std::vector<Var> AxesOf(const ScheduledStage& stage) {
  std::vector<Var> axes = stage.axes;
  axes.insert(axes.end(), stage.reduce_axes.begin(), stage.reduce_axes.end());
  return axes;
}

// By so many times fewer elements the groups of a chain's parts are worth another order.
constexpr double kFewer = 2;
constexpr size_t kMostFactors = 8;  // each of which may be joined with each

class OperandFinder {
 public:
  explicit OperandFinder(const ScheduledStage& stage) : axes_(AxesOf(stage)) {
    for (const Var& axis : axes_) all_.push_back(axis->extent > 1);
  }

  // `e` with the factors of its products, and the terms of its sums, grouped into operands, which
  // are kept in a narrow type where that keeps their values.
  Expr Grouped(const Expr& e) {
    if (e->op == Op::kLoad || !IsFloat(e->type)) return e;
    if (IsProper(Axes(e))) return Narrowed(e);
    if (e->op == Op::kMul || e->op == Op::kAdd) return GroupedChain(e);
    std::shared_ptr<ExprNode> changed;
    for (size_t i = 0; i < e->args.size(); ++i) {
      Expr arg = Grouped(e->args[i]);
      if (arg == e->args[i]) continue;
      if (changed == nullptr) changed = std::make_shared<ExprNode>(*e);
      changed->args[i] = std::move(arg);
    }
    if (changed == nullptr) return e;
    kept_.push_back(changed);
    return kept_.back();
  }

  void Find(const Expr& e, std::vector<Expr>& list) {
    if (e->type == DType::kInt64) return;  // indices are read where they are used
    // What is widened is kept as narrow as it is.
    if (e->op == Op::kCast &&
        (IsNarrow(e->args[0]->type) || SizeOf(e->args[0]->type) < SizeOf(e->type))) {
      return Find(e->args[0], list);
    }
    const bool whole = e->op == Op::kLoad || (IsFloat(e->type) && IsProper(Axes(e)));
    if (!whole) {
      for (const Expr& arg : e->args) Find(arg, list);
    } else if (Reads(e)) {
      AddIfNew(e, list);
    }
  }

 private:
  Expr Narrowed(const Expr& e) {
    const Expr narrow = e->op == Op::kCast || !Reads(e) ? nullptr : AsNarrow(e);
    return narrow == nullptr ? e : kept_.emplace_back(Cast(e->type, narrow));
  }

  // Which axes of more than one iteration an expression depends on.
  using AxisSet = std::vector<bool>;

  const AxisSet& Axes(const Expr& e) {
    const auto known = sets_.find(e.get());
    if (known != sets_.end()) return known->second;
    AxisSet set(axes_.size(), false);
    for (size_t a = 0; e->op == Op::kVar && a < axes_.size(); ++a) {
      set[a] = axes_[a] == e->var && all_[a];
    }
    for (const Expr& arg : e->args) Unite(set, Axes(arg));
    return sets_.emplace(e.get(), std::move(set)).first->second;
  }

  static void Unite(AxisSet& set, const AxisSet& other) {
    for (size_t a = 0; a < set.size(); ++a) set[a] = set[a] || other[a];
  }

  bool IsProper(const AxisSet& set) const { return set != all_; }

  bool Reads(const Expr& e) {
    const auto known = reads_.find(e.get());
    if (known != reads_.end()) return known->second;
    const bool reads =
        e->op == Op::kLoad ||
        std::any_of(e->args.begin(), e->args.end(), [this](const Expr& arg) { return Reads(arg); });
    reads_.emplace(e.get(), reads);
    return reads;
  }

  void Flatten(const Expr& e, Op op, std::vector<Expr>& parts) {
    if (e->op != op || IsProper(Axes(e))) {
      parts.push_back(Grouped(e));
      return;
    }
    for (const Expr& arg : e->args) Flatten(arg, op, parts);
  }

  // Of a part, which is grouped already; not all where there are more than are looked at.
  void AddFactors(const Expr& part, std::vector<Expr>& factors) {
    if (factors.size() > kMostFactors) return;
    if (part->op != Op::kMul || !IsProper(Axes(part))) {
      factors.push_back(part);
      return;
    }
    for (const Expr& arg : part->args) AddFactors(arg, factors);
  }

  struct Group {
    Expr value;
    AxisSet axes;
  };

  // Of a chain's parts each joins the first group with which it does not depend on all axes. Or,
  // where groups of factors have far fewer elements then, those two are joined again and again that
  // have fewest together: of M[i, j] * X[i, r] * X[i, q] the last two.
  Expr GroupedChain(const Expr& e) {
    std::vector<Expr> parts;
    Flatten(e, e->op, parts);
    std::vector<Group> groups = InOrder(e->op, parts);
    std::vector<Expr> factors;
    for (const Expr& part : parts) {
      if (e->op == Op::kMul) AddFactors(part, factors);
    }
    if (factors.size() > 2 && factors.size() <= kMostFactors) {
      std::vector<Group> smallest = SmallestFirst(factors);
      if (kFewer * ElementsOf(smallest) <= ElementsOf(groups)) groups = std::move(smallest);
    }
    Expr whole = groups[0].value;
    for (size_t g = 1; g < groups.size(); ++g) whole = MakeExpr(e->op, {whole, groups[g].value});
    kept_.push_back(whole);
    return StructurallyEqual(whole, e) ? e : whole;
  }

  std::vector<Group> InOrder(Op op, const std::vector<Expr>& parts) {
    std::vector<Group> groups;
    for (const Expr& part : parts) {
      const Group group{part, Axes(part)};
      const auto home = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
        return IsProper(Union(g.axes, group.axes));
      });
      if (home == groups.end()) {
        groups.push_back(group);
      } else {
        Join(op, *home, group);
      }
    }
    return groups;
  }

  std::vector<Group> SmallestFirst(const std::vector<Expr>& factors) {
    std::vector<Group> groups;
    for (const Expr& factor : factors) groups.push_back({factor, Axes(factor)});
    for (;;) {
      std::optional<double> fewest;
      size_t first = 0, second = 0;
      for (size_t a = 0; a < groups.size(); ++a) {
        for (size_t b = a + 1; b < groups.size(); ++b) {
          const AxisSet both = Union(groups[a].axes, groups[b].axes);
          if (!IsProper(both) || (fewest.has_value() && ElementsAlong(both) >= *fewest)) continue;
          fewest = ElementsAlong(both);
          first = a;
          second = b;
        }
      }
      if (!fewest.has_value()) return groups;
      Join(Op::kMul, groups[first], groups[second]);
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(second));
    }
  }

  static void Join(Op op, Group& group, const Group& other) {
    group.value = MakeExpr(op, {group.value, other.value});
    Unite(group.axes, other.axes);
  }

  static AxisSet Union(AxisSet set, const AxisSet& other) {
    Unite(set, other);
    return set;
  }

  double ElementsAlong(const AxisSet& set) const {
    double elements = 1;
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (set[a]) elements *= static_cast<double>(axes_[a]->extent);
    }
    return elements;
  }

  double ElementsOf(const std::vector<Group>& groups) const {
    double elements = 0;
    for (const Group& group : groups) elements += ElementsAlong(group.axes);
    return elements;
  }

  const std::vector<Var> axes_;
  AxisSet all_;
  absl::flat_hash_map<const ExprNode*, AxisSet> sets_;
  absl::flat_hash_map<const ExprNode*, bool> reads_;
  std::vector<Expr> kept_;  // the maps' keys stay alive
};

// Positions of the axes that `e` mentions, each once, in the order in which they stand.
void AddMentioned(const Expr& e, const std::vector<Var>& axes, std::vector<size_t>& mentioned) {
  std::vector<bool> here(axes.size(), false);
  Visit(e, [&](const Expr& node) {
    for (size_t a = 0; node->op == Op::kVar && a < axes.size(); ++a) {
      if (axes[a] == node->var) here[a] = true;
    }
  });
  for (size_t a = 0; a < axes.size(); ++a) {
    const bool known = std::find(mentioned.begin(), mentioned.end(), a) != mentioned.end();
    if (here[a] && !known) mentioned.push_back(a);
  }
}

// Of those that the load mentions, the axis that numbers neighbours in memory comes last, where
// another one is mentioned behind it: row % 16 of [.., terms * 16 + row % 16].
void PutNeighboursLast(const Expr& load, const std::vector<Var>& axes,
                       std::vector<size_t>& mentioned) {
  const Linear last = ToLinear(load->args.back());
  const auto coefficient = [&](size_t a) {
    const auto term = std::find_if(last.terms.begin(), last.terms.end(), [&](const Term& t) {
      return t.div == 1 && IsVar(t.x, axes[a]);
    });
    return term == last.terms.end() ? 0 : term->coef;
  };
  if (mentioned.size() < 2 || coefficient(mentioned.back()) == 1) return;
  const auto neighbours = std::find_if(mentioned.begin(), mentioned.end(),
                                       [&](size_t a) { return coefficient(a) == 1; });
  if (neighbours != mentioned.end()) std::rotate(neighbours, neighbours + 1, mentioned.end());
}

}  // namespace

Operands OperandsOf(const ScheduledStage& stage) {
  OperandFinder finder(stage);
  Operands operands{finder.Grouped(stage.body), {}};
  finder.Find(operands.body, operands.list);
  return operands;
}

std::vector<size_t> AxesInMemoryOrder(const ScheduledStage& stage, const Expr& operand) {
  const std::vector<Var> axes = AxesOf(stage);
  std::vector<size_t> inner;
  for (const Expr& load : LoadsIn(operand)) {
    std::vector<size_t> mentioned;
    for (const Expr& index : load->args) AddMentioned(index, axes, mentioned);
    PutNeighboursLast(load, axes, mentioned);
    if (mentioned.size() > inner.size()) inner = std::move(mentioned);
  }
  std::vector<size_t> all, order;
  AddMentioned(operand, axes, all);
  std::copy_if(all.begin(), all.end(), std::back_inserter(order),
               [&](size_t a) { return std::find(inner.begin(), inner.end(), a) == inner.end(); });
  order.insert(order.end(), inner.begin(), inner.end());
  return order;
}

bool ReadsAtOwnElement(const ScheduledStage& stage, const BufferRef& tensor) {
  bool only = true;
  Visit(stage.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || node->buffer != tensor) return;
    only = only && node->args.size() == stage.axes.size();
    for (size_t i = 0; only && i < node->args.size(); ++i) {
      const Expr& index = node->args[i];
      only = IsVar(index, stage.axes[i]) || (stage.axes[i]->extent == 1 && IsInt(index, 0));
    }
  });
  return only;
}

}  // namespace heddle::search_space
