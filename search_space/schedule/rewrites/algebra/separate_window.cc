#include "search_space/schedule/rewrites/algebra/separate_window.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/divide_stage.h"

namespace heddle::search_space {
namespace {

constexpr double kMostTermsLeft = 0.5;

// p = of_axis * axis + of_reduced * reduced + shift, whose values are [0, extent).
struct Positions {
  Var axis, reduced;
  int64_t of_axis, of_reduced;
  int64_t shift = 0, extent = 0;
};

// The positions that two coefficients make; none where there are gaps between them, which the
// definition does not read, or where neither variable is a whole number of steps from the other.
std::optional<Positions> PositionsOf(const Var& axis, const Var& reduced, int64_t a, int64_t b) {
  const int64_t common = std::gcd(a, b) * (a < 0 ? -1 : 1);
  Positions p{axis, reduced, a / common, b / common};
  const int64_t step = std::abs(p.of_reduced), reach = step * (reduced->extent - 1);
  const bool has_gaps = p.of_axis == 1 ? axis->extent < step : reduced->extent < p.of_axis;
  if (has_gaps || (p.of_axis != 1 && step != 1)) return std::nullopt;
  p.shift = p.of_reduced < 0 ? reach : 0;
  p.extent = p.of_axis * (axis->extent - 1) + reach + 1;
  return p;
}

// The stage in two.
struct WindowParts {
  Positions positions;
  Expr inner, outer;  // factors of the terms; `outer` null: there are none
  std::vector<Var> kept;
  Var p;
  double terms = 0;  // of both stages
};

class Window {
 public:
  Window(const Stage& stage, double most_elements) : stage_(stage), most_elements_(most_elements) {}

  std::optional<WindowParts> Best() const {
    std::optional<WindowParts> best;
    if (stage_.reduce_axes.size() < 2) return best;
    const double all = static_cast<double>(ExtentOf(stage_.axes)) *
                       static_cast<double>(ExtentOf(stage_.reduce_axes));
    for (const Positions& positions : Candidates()) {
      std::optional<WindowParts> parts = Of(positions);
      if (!parts || parts->terms > kMostTermsLeft * all) continue;
      if (!best || parts->terms < best->terms) best = std::move(parts);
    }
    return best;
  }

  // The window along all axes but one, whose tensor has this name, and along that one.
  std::pair<Stage, Stage> Write(const WindowParts& parts, const std::string& name) const {
    const auto& [axis, reduced, a, b, shift, extent] = parts.positions;
    Stage inner{.combiner = stage_.combiner}, outer = stage_;
    std::vector<std::pair<Var, Var>> own = {{parts.p, parts.p}};
    std::vector<int64_t> shape;
    ExprList at;
    for (const Var& v : parts.kept) {
      const bool is_position = v == axis;
      if (!is_position) own.emplace_back(v, MakeVar(v->name, v->extent));
      inner.axes.push_back(is_position ? parts.p : own.back().second);
      shape.push_back(inner.axes.back()->extent);
      at.push_back(is_position
                       ? Simplify(VarExpr(axis) * Int(a) + VarExpr(reduced) * Int(b) + Int(shift))
                       : VarExpr(v));
    }
    for (const Var& v : stage_.reduce_axes) {
      if (v == reduced) continue;
      own.emplace_back(v, MakeVar(v->name, v->extent));
      inner.reduce_axes.push_back(own.back().second);
    }
    inner.tensor = MakeBuffer(name, stage_.body->type, Scope::kGlobal, std::move(shape));
    inner.is_output = false;
    inner.body = Substitute(parts.inner, [&](const Var& v) -> Expr {
      const auto known =
          std::find_if(own.begin(), own.end(), [&](const auto& pair) { return pair.first == v; });
      return known == own.end() ? nullptr : VarExpr(known->second);
    });
    outer.reduce_axes = {reduced};
    outer.body = Load(inner.tensor, std::move(at));
    if (parts.outer != nullptr) outer.body = outer.body * parts.outer;
    return {std::move(inner), std::move(outer)};
  }

 private:
  // What the body's sums of a data axis and a reduced one say, each pair of axes once.
  std::vector<Positions> Candidates() const {
    std::vector<Positions> found;
    Visit(stage_.body, [&](const Expr& e) {
      if (e->type != DType::kInt64 || (e->op != Op::kAdd && e->op != Op::kSub)) return;
      const Linear sum = ToLinear(e);
      for (const Term& t : sum.terms) {
        for (const Term& u : sum.terms) Add(t, u, found);
      }
    });
    return found;
  }

  void Add(const Term& t, const Term& u, std::vector<Positions>& found) const {
    const auto is_one_of = [](const Term& term, const std::vector<Var>& axes) {
      return term.x->op == Op::kVar && term.div == 1 && term.mod == 0 && term.x->var->extent > 1 &&
             std::find(axes.begin(), axes.end(), term.x->var) != axes.end();
    };
    if (!is_one_of(t, stage_.axes) || !is_one_of(u, stage_.reduce_axes)) return;
    const bool is_known = std::any_of(found.begin(), found.end(), [&](const Positions& p) {
      return p.axis == t.x->var && p.reduced == u.x->var;
    });
    if (is_known) return;
    if (const auto p = PositionsOf(t.x->var, u.x->var, t.coef, u.coef)) found.push_back(*p);
  }

  std::optional<WindowParts> Of(const Positions& positions) const {
    const auto& [axis, reduced, a, b, shift, extent] = positions;
    WindowParts parts{.positions = positions};
    Variables others;
    for (const Var& v : stage_.reduce_axes) {
      if (v != reduced) others.push_back(v.get());
    }
    const auto factors = stage_.combiner == Combiner::kSum ? FactorsOfProduct(stage_.body)
                                                           : std::vector<Expr>{stage_.body};
    for (const Expr& factor : factors) {
      Expr& side = MentionsAny(factor, others) ? parts.inner : parts.outer;
      side = side == nullptr ? factor : side * factor;
    }
    if (parts.inner == nullptr) return std::nullopt;
    // One variable as what it is for a position and the other one, which then vanishes.
    parts.p = MakeVar(axis->name, extent);
    const Expr p = VarExpr(parts.p) - Int(shift);
    const Var &replaced = a == 1 ? axis : reduced, &other = a == 1 ? reduced : axis;
    const Expr value =
        a == 1 ? p - VarExpr(reduced) * Int(b) : (p - VarExpr(axis) * Int(a)) * Int(b);
    parts.inner = Simplify(
        Substitute(parts.inner, [&](const Var& v) { return v == replaced ? value : nullptr; }));
    if (MentionsAny(parts.inner, {other.get()})) return std::nullopt;
    double elements = static_cast<double>(extent);
    for (const Var& v : stage_.axes) {
      if (v != axis && !MentionsAny(parts.inner, {v.get()})) continue;
      parts.kept.push_back(v);
      if (v != axis) elements *= static_cast<double>(v->extent);
    }
    if (elements > most_elements_) return std::nullopt;
    const int64_t inner = ExtentOf(stage_.reduce_axes) / reduced->extent;
    const auto terms = static_cast<double>(inner);
    parts.terms = elements * terms +
                  static_cast<double>(ExtentOf(stage_.axes)) * static_cast<double>(reduced->extent);
    return parts;
  }

  const Stage& stage_;
  const double most_elements_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSeparateWindow(
    const TensorProgram& program, const std::string& name) {
  // What is left behind has one reduced axis, and is not divided again.
  const auto divide = [](const Stage& whole, const std::string& inner,
                         double most_elements) -> std::optional<std::pair<Stage, Stage>> {
    const Window window(whole, most_elements);
    const std::optional<WindowParts> best = window.Best();
    if (!best) return std::nullopt;
    return window.Write(*best, inner);
  };
  return WithStageDivided(program, name, ".window", divide,
                          " is no reduction of windows along several axes which, one axis after "
                          "the other, would have half the terms");
}

absl::Status SeparateWindow::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithSeparateWindow);
}

}  // namespace heddle::search_space
