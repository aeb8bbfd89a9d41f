#include "search_space/schedule/rewrites/axes/phases.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"

namespace heddle::search_space {
namespace {

// Terms are zero unless axes[axis] + shift = sign * reduce_axes[reduced] (mod stride), where shift
// is less than stride. Without `reduced` none is: (axes[axis] + shift) / stride is read, and the
// remainder.
struct Congruence {
  size_t axis;
  std::optional<size_t> reduced;
  int64_t stride, shift, sign;
};

// The conditions under each of which alone a product vanishes where it does not hold.
void AddGuards(const Expr& e, std::vector<Expr>& guards) {
  if (e->op == Op::kMul) {
    for (const Expr& factor : e->args) AddGuards(factor, guards);
  }
  if (e->op != Op::kSelect || e->args[2]->op != Op::kFloat || e->args[2]->float_value != 0) return;
  for (const Expr& guard : Conjuncts(e->args[0])) guards.push_back(guard);
  AddGuards(e->args[1], guards);
}

std::optional<size_t> IndexIn(const std::vector<Var>& axes, const Var& var) {
  const auto at = std::find(axes.begin(), axes.end(), var);
  if (at == axes.end()) return std::nullopt;
  return static_cast<size_t>(at - axes.begin());
}

// sum % stride == remainder, where the sum has one axis and one reduced axis that are not taken
// a multiple of the stride times.
std::optional<Congruence> AsCongruence(const Stage& stage, const Expr& guard) {
  if (guard->op != Op::kEq || guard->args[0]->op != Op::kMod || guard->args[1]->op != Op::kInt) {
    return std::nullopt;
  }
  const int64_t stride = guard->args[0]->args[1]->int_value;
  const Linear sum = ToLinear(guard->args[0]->args[0]);
  std::optional<size_t> axis, reduced;
  int64_t of_axis = 0, of_reduced = 0;
  for (const Term& t : sum.terms) {
    if (t.coef % stride == 0) continue;
    if (t.x->op != Op::kVar || t.div != 1 || t.mod != 0 || std::abs(t.coef) != 1) {
      return std::nullopt;
    }
    const bool reduces = IndexIn(stage.reduce_axes, t.x->var).has_value();
    if ((reduces ? reduced : axis).has_value()) return std::nullopt;
    (reduces ? reduced : axis) = IndexIn(reduces ? stage.reduce_axes : stage.axes, t.x->var);
    (reduces ? of_reduced : of_axis) = t.coef;
  }
  if (!axis.has_value() || !reduced.has_value()) return std::nullopt;
  const int64_t constant = of_axis * (sum.constant - guard->args[1]->int_value);
  return Congruence{.axis = *axis,
                    .reduced = reduced,
                    .stride = stride,
                    .shift = constant - FloorDivide(constant, stride) * stride,
                    .sign = -of_axis * of_reduced};
}

// Are two factors of the stage's terms a product of matrices, with the blocks of an axis in the
// rows and the places in them in the columns?
bool IsProductOfParts(const Stage& stage, const Var& axis, int64_t width, int64_t shift) {
  bool rows = false, columns = false;
  for (const Expr& load : LoadsIn(stage.body)) {
    const PartsRead parts = PartsReadBy(load, axis, width, shift);
    rows = rows || (parts.block && !parts.place);
    columns = columns || (parts.place && !parts.block);
  }
  return rows && columns;
}

// Of a quotient (axis + shift) / stride that is worth phases; those without a shift are axes'
// parts (split_axis.h).
std::optional<Congruence> AsQuotient(const Stage& stage, const Expr& e) {
  if (e->op != Op::kDiv || e->type != DType::kInt64) return std::nullopt;
  const int64_t stride = e->args[1]->int_value;
  const Linear sum = ToLinear(e->args[0]);
  if (sum.terms.size() != 1 || sum.constant <= 0 || sum.constant >= stride) return std::nullopt;
  const Term& t = sum.terms[0];
  if (t.coef != 1 || t.div != 1 || t.mod != 0 || t.x->op != Op::kVar) return std::nullopt;
  const std::optional<size_t> axis = IndexIn(stage.axes, t.x->var);
  if (!axis.has_value() || !IsProductOfParts(stage, t.x->var, stride, sum.constant)) {
    return std::nullopt;
  }
  return Congruence{
      .axis = *axis, .reduced = std::nullopt, .stride = stride, .shift = sum.constant, .sign = 1};
}

std::optional<Congruence> FindCongruence(const Stage& stage) {
  std::vector<Expr> guards;
  AddGuards(stage.body, guards);
  for (const Expr& guard : guards) {
    if (const auto found = AsCongruence(stage, guard)) return found;
  }
  std::optional<Congruence> found;
  Visit(stage.body, [&](const Expr& e) {
    if (!found.has_value()) found = AsQuotient(stage, e);
  });
  return found;
}

// Replaces variables of the body, one by one.
void Replace(Stage& stage, const Var& var, const Expr& value) {
  stage.body =
      Substitute(stage.body, [&](const Var& v) -> Expr { return v == var ? value : nullptr; });
}

// Splits the two axes of the sum; `reads`: what its reader reads it at, in the reader's axes.
void TakeApart(const Congruence& c, Stage& sum, std::vector<Expr>& reads) {
  const Var y = sum.axes[c.axis];
  // The positions of all phases that are numbered u: from u * s on, or up to it.
  const int64_t shift = c.sign > 0 ? c.shift : c.shift + c.stride - 1;
  const Var u = MakeVar(y->name, (y->extent - 1 + shift) / c.stride + 1);
  const Var p = MakeVar(sum.UnusedAxisName(absl::StrCat(y->name, "_phase")), c.stride);
  Replace(sum, y, VarExpr(u) * Int(c.stride) + VarExpr(p) * Int(c.sign) - Int(c.shift));
  if (c.reduced.has_value()) {
    Var& reduced = sum.reduce_axes[*c.reduced];
    const Var r = reduced;
    reduced = MakeVar(r->name, (r->extent + c.stride - 1) / c.stride);
    const Expr tap = VarExpr(reduced) * Int(c.stride) + VarExpr(p);
    Replace(sum, r, tap);
    if (r->extent % c.stride != 0) {
      sum.body = Select(tap < Int(r->extent), sum.body, Float(0, sum.body->type));
    }
  }
  sum.body = Simplify(sum.body);
  sum.axes[c.axis] = u;
  const auto after = static_cast<std::ptrdiff_t>(c.axis) + 1;
  sum.axes.insert(sum.axes.begin() + after, p);
  const Expr at = reads[c.axis] + Int(shift), phase = at % Int(c.stride);
  reads[c.axis] = at / Int(c.stride);
  reads.insert(reads.begin() + after, c.sign > 0 ? phase : Int(c.stride - 1) - phase);
}

}  // namespace

absl::StatusOr<std::vector<ScheduledStage>> PhaseStages(const Schedule& schedule, int index) {
  ScheduledStage whole = schedule.stage(index);
  Stage sum{.tensor = whole.tensor,
            .axes = whole.axes,
            .reduce_axes = whole.reduce_axes,
            .combiner = whole.combiner,
            .body = whole.body};
  if (sum.combiner != Combiner::kSum || !FindCongruence(sum).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(whole.name(),
                                                   " is not a sum with a factor select((y + c - r) "
                                                   "% s == 0, .., 0) of an axis y and a reduced "
                                                   "axis r, or a product of what is read at "
                                                   "(y + c) / s and at (y + c) % s"));
  }
  std::vector<Expr> reads;
  for (const Var& axis : whole.axes) reads.push_back(VarExpr(axis));
  for (auto* axes : {&sum.axes, &sum.reduce_axes}) {
    for (Var& axis : *axes) {
      const Var own = MakeVar(axis->name, axis->extent);
      Replace(sum, axis, VarExpr(own));
      axis = own;
    }
  }
  // Each axis at most once: what is split has no such guard or quotient any more.
  const size_t most = whole.axes.size() + whole.reduce_axes.size();
  for (size_t axis = 0; axis < most; ++axis) {
    if (const auto found = FindCongruence(sum)) TakeApart(*found, sum, reads);
  }
  const std::string name = absl::StrCat(whole.name(), ".phases");
  sum.tensor = TensorOver(sum.axes, absl::StrCat(name, ".acc"), sum.tensor->dtype);
  Stage copy;
  ExprList at;
  for (const Var& axis : sum.axes) {
    copy.axes.push_back(MakeVar(axis->name, axis->extent));
    at.push_back(VarExpr(copy.axes.back()));
  }
  copy.body = Load(sum.tensor, std::move(at));
  copy.tensor = sum.tensor;
  copy.tensor = TensorOver(copy.axes, name, copy.tensor->dtype);
  whole.combiner = Combiner::kNone;
  whole.reduce_axes.clear();
  whole.body = Load(copy.tensor, ExprList(reads.begin(), reads.end()));
  ResetLoops(whole);
  std::vector<ScheduledStage> stages = {MakeScheduledStage(sum), MakeScheduledStage(copy),
                                        std::move(whole)};
  stages[1].materialized = true;
  return stages;
}

absl::Status Phases::ApplyTo(ScheduleEditor& editor) const {
  return editor.Rewrite(stage, PhaseStages);
}

}  // namespace heddle::search_space
