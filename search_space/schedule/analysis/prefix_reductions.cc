#include "search_space/schedule/analysis/prefix_reductions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

// The axis that the term is, or that it is modulo `window`.
std::optional<size_t> IndexIn(const std::vector<Var>& axes, const Term& t, int64_t window = 0) {
  if (t.x->op != Op::kVar || t.div != 1 || t.mod != window) return std::nullopt;
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
    const auto reduced = IndexIn(stage.reduce_axes, r);
    if (!reduced || r.coef != -j.coef || std::abs(r.coef) != 1) continue;
    const int64_t length = r.x->var->extent;
    const auto axis = IndexIn(stage.axes, j), windowed = IndexIn(stage.axes, j, length);
    if (!axis && !windowed) continue;
    if (axis && length != j.x->var->extent) return std::nullopt;
    return PrefixMask{.axis = axis ? *axis : *windowed,
                      .reduced = *reduced,
                      .reversed = r.coef < 0,
                      .strict = constant == 0,
                      .in_windows = windowed.has_value()};
  }
  return std::nullopt;
}

// The same without the number of the window, which all terms of an element share.
Expr WithoutWindow(const Expr& e, const ScheduledStage& stage, const PrefixMask& mask) {
  if (!mask.in_windows) return e;
  const Var& axis = stage.axes[mask.axis];
  const Expr window = VarExpr(axis) / Int(stage.reduce_axes[mask.reduced]->extent);
  const Expr none = Int(0);
  return Rewrite(e, [&](const Expr& node) -> Expr {
    return StructurallyEqual(node, window) ? none : nullptr;
  });
}

// A reduction of prefixes, whatever its terms are and what it leaves out is replaced by.
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
        std::any_of(mask->conditions.begin(), mask->conditions.end(), [&](const Expr& condition) {
          return MentionsAny(WithoutWindow(condition, stage, *mask), {axis.get()});
        });
    if (!elsewhere) return mask;
  }
  return std::nullopt;
}

bool TermsMentionAxis(const ScheduledStage& stage, const PrefixMask& mask) {
  return MentionsAny(WithoutWindow(stage.body->args[1], stage, mask),
                     {stage.axes[mask.axis].get()});
}

// `e` at an element's own term.
Expr AtOwn(const Expr& e, const ScheduledStage& stage, const PrefixMask& mask) {
  const Var& r = stage.reduce_axes[mask.reduced];
  const Expr j = VarExpr(stage.axes[mask.axis]);
  const Expr own = mask.in_windows ? j % Int(r->extent) : j;
  return Simplify(Substitute(e, [&](const Var& v) -> Expr { return v == r ? own : nullptr; }));
}

// term(r) * exp(slope * (level(j) - level(r))).
struct Decaying {
  Expr term, level;
  double slope;
};

// Finds out whether a term is such.
class DecayFinder {
 public:
  DecayFinder(const ScheduledStage& stage, const PrefixMask& mask)
      : stage_(stage),
        mask_(mask),
        j_(stage.axes[mask.axis]),
        r_(stage.reduce_axes[mask.reduced]) {}

  std::optional<Decaying> Of(const Expr& value) {
    if (value->type != DType::kFloat32 || !AddFactors(value) || exponent_ == nullptr) {
      return std::nullopt;
    }
    AddSummands(exponent_, 1);
    // One difference alone: levels are rounded, and differences of sums of them more than sums of
    // their differences.
    const Summand* level = nullptr;
    for (const Summand& up : summands_) {
      if (!MentionsElement(up.value)) continue;
      if (level != nullptr || MentionsReduced(up.value) || !TakeOpposite(up)) return std::nullopt;
      level = &up;
    }
    if (level == nullptr) return std::nullopt;
    Expr own = term_, others;
    for (const Summand& s : summands_) {
      if (s.taken || &s == level) continue;
      const Expr scaled = s.scale == 1 ? s.value : s.value * Float(s.scale, s.value->type);
      others = others == nullptr ? scaled : others + scaled;
    }
    if (others != nullptr) {
      const Expr factor = MakeExpr(Op::kExp, {others});
      own = own == nullptr ? factor : own * factor;
    }
    return Decaying{own == nullptr ? Float(1, value->type) : own, level->value, level->scale};
  }

 private:
  struct Summand {
    double scale;
    Expr value;
    bool taken = false;
  };

  bool MentionsElement(const Expr& e) const {
    return MentionsAny(WithoutWindow(e, stage_, mask_), {j_.get()});
  }

  bool MentionsReduced(const Expr& e) const {
    return std::any_of(stage_.reduce_axes.begin(), stage_.reduce_axes.end(),
                       [&](const Var& axis) { return MentionsAny(e, {axis.get()}); });
  }

  // False where something but one exponential depends on j.
  bool AddFactors(const Expr& e) {
    if (!MentionsElement(e)) {
      term_ = term_ == nullptr ? e : term_ * e;
      return true;
    }
    if (e->op == Op::kMul) return AddFactors(e->args[0]) && AddFactors(e->args[1]);
    if (e->op != Op::kExp || exponent_ != nullptr) return false;
    exponent_ = e->args[0];
    return true;
  }

  void AddSummands(const Expr& e, double scale) {
    const auto number = [](const Expr& x) { return x->op == Op::kFloat; };
    if (e->op == Op::kAdd || e->op == Op::kSub) {
      AddSummands(e->args[0], scale);
      AddSummands(e->args[1], e->op == Op::kSub ? -scale : scale);
    } else if (e->op == Op::kNeg) {
      AddSummands(e->args[0], -scale);
    } else if (e->op == Op::kMul && number(e->args[0])) {
      AddSummands(e->args[1], scale * e->args[0]->float_value);
    } else if (e->op == Op::kMul && number(e->args[1])) {
      AddSummands(e->args[0], scale * e->args[1]->float_value);
    } else {
      summands_.push_back({scale, e});
    }
  }

  // Is there the same of r, taken away?
  bool TakeOpposite(const Summand& up) {
    for (Summand& down : summands_) {
      if (down.taken || down.scale != -up.scale || !MentionsAny(down.value, {r_.get()})) continue;
      if (!StructurallyEqual(AtOwn(down.value, stage_, mask_), Simplify(up.value))) continue;
      return down.taken = true;
    }
    return false;
  }

  const ScheduledStage& stage_;
  const PrefixMask& mask_;
  const Var& j_;
  const Var& r_;
  Expr term_, exponent_;
  std::vector<Summand> summands_;
};

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
  std::optional<PrefixMask> mask = FindMask(stage);
  if (!mask) return std::nullopt;
  mask->term = stage.body->args[1];
  if (!TermsMentionAxis(stage, *mask)) return mask;
  if (stage.combiner != Combiner::kSum) return std::nullopt;
  const auto decaying = DecayFinder(stage, *mask).Of(mask->term);
  if (!decaying) return std::nullopt;
  mask->term = decaying->term;
  mask->level = decaying->level;
  mask->slope = decaying->slope;
  return mask;
}

std::optional<Scan> ScanOf(const ScheduledStage& stage) {
  const std::optional<PrefixMask> mask = PrefixMaskOf(stage);
  if (!mask) return std::nullopt;
  const Var& r = stage.reduce_axes[mask->reduced];
  const Expr j = VarExpr(stage.axes[mask->axis]);
  const Expr own = mask->in_windows ? j % Int(r->extent) : j;
  // Reads are known to be inside of their tensors for terms that count for some element only.
  Expr counts;
  if (mask->strict) counts = mask->reversed ? Int(0) < own : own < Int(r->extent - 1);
  for (const Expr& condition : mask->conditions) {
    counts = AndAlso(counts, AtOwn(condition, stage, *mask));
  }
  Expr term = AtOwn(mask->term, stage, *mask);
  if (counts != nullptr && !IsInt(counts, 1)) {
    term = Select(counts, term, IdentityOf(stage.combiner, stage.body->type));
  }
  return Scan{.axis = mask->axis,
              .reduced = mask->reduced,
              .reversed = mask->reversed,
              .strict = mask->strict,
              .in_windows = mask->in_windows,
              .term = term,
              .level = mask->level,
              .slope = mask->slope};
}

Expr DecayOf(double slope, const Expr& from, const Expr& to) {
  const Expr difference = to - from;
  return MakeExpr(Op::kExp,
                  {slope == 1 ? difference : difference * Float(slope, difference->type)});
}

int64_t ScanLength(const ScheduledStage& stage) {
  const std::optional<Scan> scan = ScanOf(stage);
  return scan ? stage.reduce_axes[scan->reduced]->extent : 0;
}

std::optional<BoundedScan> BoundedScanOf(const ScheduledStage& stage) {
  if (stage.combiner != Combiner::kMax && stage.combiner != Combiner::kMin) return std::nullopt;
  const std::optional<PrefixMask> mask = FindMask(stage);
  if (!mask || mask->in_windows || !mask->conditions.empty() || TermsMentionAxis(stage, *mask)) {
    return std::nullopt;
  }
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
