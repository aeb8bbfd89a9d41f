#include "search_space/schedule/prefix_reductions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

std::optional<size_t> IndexIn(const std::vector<Var>& axes, const Term& t) {
  if (t.x->op != Op::kVar || t.div != 1 || t.mod != 0) return std::nullopt;
  const auto at = std::find(axes.begin(), axes.end(), t.x->var);
  if (at == axes.end()) return std::nullopt;
  return static_cast<size_t>(at - axes.begin());
}

// a < b that compares one reduced axis with one axis of the same extent.
std::optional<PrefixMask> AsMask(const ScheduledStage& stage, const Expr& condition) {
  if (condition->op != Op::kLt && condition->op != Op::kLe) return std::nullopt;
  if (condition->args[0]->type != DType::kInt64) return std::nullopt;
  const Linear difference = Difference(condition->args[0], condition->args[1]);
  const int64_t constant = difference.constant - (condition->op == Op::kLe ? 1 : 0);
  if (difference.terms.size() != 2 || (constant != 0 && constant != -1)) return std::nullopt;
  for (size_t first : {0, 1}) {
    const Term &r = difference.terms[first], &j = difference.terms[1 - first];
    const auto reduced = IndexIn(stage.reduce_axes, r), axis = IndexIn(stage.axes, j);
    if (!reduced || !axis || r.coef != -j.coef || std::abs(r.coef) != 1) continue;
    if (r.x->var->extent != j.x->var->extent) return std::nullopt;
    return PrefixMask{*axis, *reduced, r.coef < 0, constant == 0, {}};
  }
  return std::nullopt;
}

bool Mentions(const Expr& e, const Var& var) {
  bool found = false;
  Visit(e, [&](const Expr& node) { found = found || (node->op == Op::kVar && node->var == var); });
  return found;
}

// A reduction of prefixes, whatever what it leaves out is replaced by.
std::optional<PrefixMask> FindMask(const ScheduledStage& stage) {
  if (!stage.is_reduction() || stage.body->op != Op::kSelect) return std::nullopt;
  const std::vector<Expr> conditions = Conjuncts(Simplify(stage.body->args[0]));
  for (size_t c = 0; c < conditions.size(); ++c) {
    std::optional<PrefixMask> mask = AsMask(stage, conditions[c]);
    if (!mask) continue;
    mask->conditions = conditions;
    mask->conditions.erase(mask->conditions.begin() + static_cast<std::ptrdiff_t>(c));
    const Var& axis = stage.axes[mask->axis];
    const bool elsewhere =
        Mentions(stage.body->args[1], axis) ||
        std::any_of(mask->conditions.begin(), mask->conditions.end(),
                    [&](const Expr& condition) { return Mentions(condition, axis); });
    if (!elsewhere) return mask;
  }
  return std::nullopt;
}

}  // namespace

Expr PrefixMask::Allows(const Expr& r, const Expr& j) const {
  const Expr &low = reversed ? j : r, &high = reversed ? r : j;
  return MakeExpr(strict ? Op::kLt : Op::kLe, {low, high});
}

std::optional<PrefixMask> PrefixMaskOf(const ScheduledStage& stage) {
  if (!stage.is_reduction() || stage.body->op != Op::kSelect) return std::nullopt;
  const Expr& other = stage.body->args[2];
  const Expr identity = IdentityOf(stage.combiner, stage.body->type);
  if (other->op != Op::kFloat || other->float_value != identity->float_value) return std::nullopt;
  return FindMask(stage);
}

int64_t ScanLength(const ScheduledStage& stage) {
  const std::optional<PrefixMask> mask = PrefixMaskOf(stage);
  return mask ? stage.axes[mask->axis]->extent : 0;
}

std::optional<Scan> ScanOf(const ScheduledStage& stage) {
  const std::optional<PrefixMask> mask = PrefixMaskOf(stage);
  if (!mask) return std::nullopt;
  const Var& r = stage.reduce_axes[mask->reduced];
  const Expr j = VarExpr(stage.axes[mask->axis]);
  const auto at_own = [&](const Expr& e) {
    return Substitute(e, [&](const Var& v) -> Expr { return v == r ? j : nullptr; });
  };
  // Reads are known to be inside of their tensors for terms that count for some element only.
  Expr counts;
  if (mask->strict) counts = mask->reversed ? Int(0) < j : j < Int(r->extent - 1);
  for (const Expr& condition : mask->conditions) counts = AndAlso(counts, at_own(condition));
  Expr term = at_own(stage.body->args[1]);
  if (counts != nullptr) {
    term = Select(counts, term, IdentityOf(stage.combiner, stage.body->type));
  }
  return Scan{mask->axis, mask->reduced, mask->reversed, mask->strict, term};
}

std::optional<BoundedScan> BoundedScanOf(const ScheduledStage& stage) {
  if (stage.combiner != Combiner::kMax && stage.combiner != Combiner::kMin) return std::nullopt;
  const std::optional<PrefixMask> mask = FindMask(stage);
  if (!mask || !mask->conditions.empty()) return std::nullopt;
  const Expr& value = stage.body->args[2];
  if (value->op != Op::kFloat || std::isinf(value->float_value)) return std::nullopt;
  const Var& axis = stage.axes[mask->axis];
  const Expr j = VarExpr(axis);
  Expr where;
  if (!mask->strict) where = mask->reversed ? Int(0) < j : j < Int(axis->extent - 1);
  return BoundedScan{Select(stage.body->args[0], stage.body->args[1],
                            IdentityOf(stage.combiner, stage.body->type)),
                     value, where};
}

}  // namespace heddle::search_space
