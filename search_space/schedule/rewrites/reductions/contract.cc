#include "search_space/schedule/rewrites/reductions/contract.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/divide_stage.h"

namespace heddle::search_space {
namespace {

// All subsets of the factors are looked at.
constexpr size_t kMostFactors = 8;
constexpr double kWorthwhile = 0.75;

using AxisSet = std::vector<bool>;  // of the data axes, then of the reduced ones

AxisSet United(AxisSet a, const AxisSet& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] || b[i];
  return a;
}

// The factors of a stage that are multiplied first, and what is summed up of their product.
struct Division {
  std::vector<bool> inner;  // of the factors
  AxisSet kept, summed;     // axes of the inner product: of its result, and of its sum
  double operations = 0;    // of both stages
};

class Contraction {
 public:
  Contraction(const Stage& stage, double most_elements)
      : stage_(stage), most_elements_(most_elements), axes_(stage.axes) {
    axes_.insert(axes_.end(), stage.reduce_axes.begin(), stage.reduce_axes.end());
    factors_ = FactorsOfProduct(stage.body);
    for (const Expr& factor : factors_) mentioned_.push_back(MentionedIn(factor));
  }

  std::optional<Division> Best() const {
    if (stage_.combiner != Combiner::kSum || !IsFloat(stage_.body->type) ||
        stage_.reduce_axes.size() < 2 || factors_.size() < 2 || factors_.size() > kMostFactors) {
      return std::nullopt;
    }
    std::optional<Division> best;
    const double all =
        Iterations(AxisSet(axes_.size(), true)) * static_cast<double>(factors_.size());
    for (uint32_t chosen = 1; chosen + 1 < uint32_t{1} << factors_.size(); ++chosen) {
      std::optional<Division> division = Of(chosen);
      if (!division || division->operations > kWorthwhile * all) continue;
      if (!best || division->operations < best->operations) best = std::move(division);
    }
    return best;
  }

  // The stage of the inner product, whose tensor has this name, and what is left of the whole.
  std::pair<Stage, Stage> Write(const Division& division, const std::string& name) const {
    Stage inner{.combiner = Combiner::kSum}, outer = stage_;
    std::vector<Var> own(axes_.size());
    std::vector<int64_t> shape;
    ExprList at;
    outer.reduce_axes.clear();
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (a >= stage_.axes.size() && !division.summed[a]) outer.reduce_axes.push_back(axes_[a]);
      if (!division.kept[a] && !division.summed[a]) continue;
      own[a] = MakeVar(axes_[a]->name, axes_[a]->extent);
      (division.summed[a] ? inner.reduce_axes : inner.axes).push_back(own[a]);
      if (division.summed[a]) continue;
      shape.push_back(axes_[a]->extent);
      at.push_back(VarExpr(axes_[a]));
    }
    inner.tensor = MakeBuffer(name, stage_.body->type, Scope::kGlobal, std::move(shape));
    inner.body = Substitute(Product(division.inner, true), [&](const Var& v) -> Expr {
      const auto axis = std::find(axes_.begin(), axes_.end(), v);
      if (axis == axes_.end()) return nullptr;
      return VarExpr(own[static_cast<size_t>(axis - axes_.begin())]);
    });
    outer.body = Load(inner.tensor, std::move(at)) * Product(division.inner, false);
    return {std::move(inner), std::move(outer)};
  }

 private:
  AxisSet MentionedIn(const Expr& e) const {
    AxisSet set(axes_.size(), false);
    Visit(e, [&](const Expr& node) {
      for (size_t a = 0; node->op == Op::kVar && a < axes_.size(); ++a) {
        set[a] = set[a] || axes_[a] == node->var;
      }
    });
    return set;
  }

  double Iterations(const AxisSet& set) const {
    double iterations = 1;
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (set[a]) iterations *= static_cast<double>(axes_[a]->extent);
    }
    return iterations;
  }

  std::optional<Division> Of(uint32_t chosen) const {
    Division division;
    AxisSet inner(axes_.size(), false), others = inner;
    double factors = 0;
    for (size_t f = 0; f < factors_.size(); ++f) {
      division.inner.push_back((chosen >> f & 1) != 0);
      AxisSet& side = division.inner.back() ? inner : others;
      side = United(side, mentioned_[f]);
      factors += division.inner.back() ? 1 : 0;
    }
    division.kept = division.summed = AxisSet(axes_.size(), false);
    bool sums = false, is_left = false, is_kept = false;
    AxisSet whole(axes_.size(), true);  // axes that remain for the outer sum
    for (size_t a = 0; a < axes_.size(); ++a) {
      const bool is_reduced = a >= stage_.axes.size();
      division.summed[a] = is_reduced && inner[a] && !others[a];
      division.kept[a] = inner[a] && !division.summed[a];
      sums = sums || division.summed[a];
      is_kept = is_kept || division.kept[a];
      is_left = is_left || (is_reduced && !division.summed[a]);
      if (division.summed[a]) whole[a] = false;
    }
    // A stage without axes is none that the notation has.
    if (!sums || !is_left || !is_kept) return std::nullopt;
    if (Iterations(division.kept) > most_elements_) return std::nullopt;
    const double outer = static_cast<double>(factors_.size()) - factors + 1;
    division.operations = Iterations(inner) * factors + Iterations(whole) * outer;
    return division;
  }

  Expr Product(const std::vector<bool>& inner, bool of_inner) const {
    Expr product;
    for (size_t f = 0; f < factors_.size(); ++f) {
      if (inner[f] != of_inner) continue;
      product = product == nullptr ? factors_[f] : product * factors_[f];
    }
    return product;
  }

  const Stage& stage_;
  const double most_elements_;
  std::vector<Var> axes_;
  std::vector<Expr> factors_;
  std::vector<AxisSet> mentioned_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithContractions(const TensorProgram& program,
                                                                      const std::string& name) {
  const auto divide = [](const Stage& whole, const std::string& inner,
                         double most_elements) -> std::optional<std::pair<Stage, Stage>> {
    const Contraction contraction(whole, most_elements);
    const std::optional<Division> best = contraction.Best();
    if (!best) return std::nullopt;
    return contraction.Write(*best, inner);
  };
  return WithStageDivided(program, name, ".pair", divide,
                          " is no sum of products of which some, summed up first, would leave "
                          "three quarters of the operations");
}

absl::Status Contract::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithContractions);
}

}  // namespace heddle::search_space
