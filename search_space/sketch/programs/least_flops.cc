#include "search_space/sketch/programs/least_flops.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "search_space/ir/expr/interval.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/form.h"

namespace heddle::search_space {
namespace {

// The values that a variable may have.
struct Side {
  const Variable* var;
  Interval values;
};

// Bounds of a sum with `sides` for variables; nothing is known of where in other terms they stand.
Interval BoundsIn(const Linear& sum, const std::vector<Side>& sides) {
  Interval bounds{sum.constant, sum.constant};
  for (const Term& t : sum.terms) {
    Interval term = BoundsOf(t);
    for (const Side& s : sides) {
      if (t.x->op != Op::kVar || t.div != 1 || t.mod != 0 || t.x->var.get() != s.var) continue;
      term = {t.coef * (t.coef > 0 ? s.values.min : s.values.max),
              t.coef * (t.coef > 0 ? s.values.max : s.values.min)};
    }
    bounds = {bounds.min + term.min, bounds.max + term.max};
  }
  return bounds;
}

// One of these sums is negative.
using Alternatives = std::vector<Linear>;

// Of all values in `sides` the share for which all conditions hold, at least: boxes are halved
// along their longest side until that is decided, and those that remain do not count.
double LeastShare(const std::vector<Alternatives>& conditions, std::vector<Side> sides,
                  int halvings) {
  bool all = true;
  for (const Alternatives& sums : conditions) {
    bool may_hold = false, holds = false;
    for (const Linear& sum : sums) {
      const Interval bounds = BoundsIn(sum, sides);
      may_hold = may_hold || bounds.min < 0;
      holds = holds || bounds.max < 0;
    }
    if (!may_hold) return 0;
    all = all && holds;
  }
  if (all) return 1;
  const auto length = [](const Side& s) { return s.values.max - s.values.min + 1; };
  const auto longest =
      std::max_element(sides.begin(), sides.end(),
                       [&](const Side& a, const Side& b) { return length(a) < length(b); });
  if (halvings == 0 || longest == sides.end() || length(*longest) == 1) return 0;
  const Interval whole = longest->values;
  const int64_t middle = whole.min + (whole.max - whole.min) / 2;
  const double lower =
      static_cast<double>(middle - whole.min + 1) / static_cast<double>(whole.max - whole.min + 1);
  longest->values = {whole.min, middle};
  const double in_lower = LeastShare(conditions, sides, halvings - 1);
  longest->values = {middle + 1, whole.max};
  return lower * in_lower + (1 - lower) * LeastShare(conditions, std::move(sides), halvings - 1);
}

// Comparisons with what tensors hold may hold nowhere.
void AddAlternatives(const Expr& condition, Alternatives& sums) {
  if (condition->op == Op::kOr) {
    for (const Expr& c : condition->args) AddAlternatives(c, sums);
  } else if (!ReadsIndices(condition)) {
    sums.push_back(Difference(condition->args[0], condition->args[1]));
  }
}

// The share of a sum's terms that its masks leave (skip_masked), at least.
double ShareOf(const ScheduledStage& sum) {
  // Of a triangle of rows and columns, boxes of a 128th each way are not decided.
  constexpr int kHalvings = 14;
  std::vector<Alternatives> conditions;
  std::vector<Side> sides;
  for (const Expr& c : sum.useful) {
    AddAlternatives(c, conditions.emplace_back());
    if (conditions.back().empty()) return 0;
    Visit(c, [&](const Expr& node) {
      if (node->op != Op::kVar) return;
      const bool known = std::any_of(sides.begin(), sides.end(),
                                     [&](const Side& s) { return s.var == node->var.get(); });
      if (!known) sides.push_back({node->var.get(), {0, node->var->extent - 1}});
    });
  }
  return LeastShare(conditions, std::move(sides), kHalvings);
}

// The schedule with sums that leave out what masks allow, through the stages that are computed
// elementwise between them.
Schedule Masked(Schedule schedule) {
  const auto reads_reduction = [&](const ScheduledStage& s) {
    bool reads = false;
    Visit(s.body, [&](const Expr& node) {
      if (node->op != Op::kLoad) return;
      const int read = schedule.FindStage(node->buffer.get());
      reads = reads || (read >= 0 && schedule.stage(read).is_reduction());
    });
    return reads;
  };
  const auto try_all = [&](const auto& step_of) {
    for (size_t i = 0; i < schedule.stages().size(); ++i) {
      // What does not apply leaves the schedule as it was.
      if (const auto step = step_of(schedule.stages()[i])) (void)Apply(*step, schedule);
    }
  };
  try_all([&](const ScheduledStage& s) -> std::optional<Step> {
    if (s.is_reduction() || s.is_output || s.materialized || reads_reduction(s)) return {};
    return ComputeInline{s.name()};
  });
  try_all([&](const ScheduledStage& s) -> std::optional<Step> {
    if (s.combiner != Combiner::kSum) return {};
    return SkipMasked{s.name()};
  });
  return schedule;
}

// The operations of a stage whose operands are grouped as tiles would, and each computed once for
// the axes on which it depends: a row's scale not for every term.
class LeastOperations {
 public:
  explicit LeastOperations(const ScheduledStage& stage) {
    for (const auto* axes : {&stage.axes, &stage.reduce_axes}) {
      for (const Var& axis : *axes) axes_.push_back(axis);
    }
    const double terms = Iterations(AxisSet(axes_.size(), true));
    count_ = stage.is_reduction() ? terms : 0;
    AxisSet all(axes_.size(), false);
    count_ += Of(OperandsOf(stage).body, all);
  }
  double count() const { return count_; }

 private:
  using AxisSet = std::vector<bool>;

  double Iterations(const AxisSet& set) const {
    double iterations = 1;
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (set[a]) iterations *= static_cast<double>(axes_[a]->extent);
    }
    return iterations;
  }

  // Of `e`, whose axes are added to `mentioned`.
  double Of(const Expr& e, AxisSet& mentioned) const {
    AxisSet own(axes_.size(), false);
    double count = 0, longer = 0;
    for (size_t i = 0; i < e->args.size(); ++i) {
      const double arg = Of(e->args[i], own);
      const bool is_side = e->op == Op::kSelect && i > 0;
      (is_side ? longer : count) = is_side ? std::max(longer, arg) : count + arg;
    }
    for (size_t a = 0; e->op == Op::kVar && a < axes_.size(); ++a) own[a] = axes_[a] == e->var;
    const bool is_free = e->args.empty() || e->op == Op::kLoad || e->op == Op::kCast ||
                         e->op == Op::kSelect || !IsFloat(e->type);
    for (size_t a = 0; a < axes_.size(); ++a) mentioned[a] = mentioned[a] || own[a];
    return count + longer + (is_free ? 0 : Iterations(own));
  }

  std::vector<Var> axes_;
  double count_ = 0;
};

double FlopsOf(const Schedule& schedule) {
  const Schedule masked = Masked(schedule);
  double flops = 0;
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    // Indices may name no place for any term.
    if (PlacesOfTerm(s) > 1) continue;
    // Threads that share a scan compute each term once (share_scan).
    const int64_t length = ScanLength(s);
    flops += LeastOperations(s).count() *
             (length > 0 ? 1.0 / static_cast<double>(length) : ShareOf(masked.stages()[i]));
  }
  return flops;
}

}  // namespace

double LeastFlops(const TensorProgram& program) {
  double least = program.Flops();
  const auto shared = FormOf(std::make_shared<const TensorProgram>(program)).program;
  for (const Algorithm& algorithm : AlgorithmsOf(shared)) {
    Schedule schedule(shared);
    if (Apply(algorithm.steps, schedule).ok()) least = std::min(least, FlopsOf(schedule));
  }
  return least;
}

}  // namespace heddle::search_space
