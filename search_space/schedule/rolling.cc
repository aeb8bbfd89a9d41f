#include "search_space/schedule/rolling.h"

#include <algorithm>

#include "search_space/ir/parts.h"
#include "search_space/ir/simplify.h"

namespace heddle::search_space {
namespace {

using Slope = std::optional<double>;

class Dependence {
 public:
  Dependence(const Schedule& schedule, const ScheduledStage& sum, const ScheduledStage& running)
      : schedule_(schedule),
        row_(RowOf(sum)),
        running_(running),
        axis_(static_cast<size_t>(running.FindAxis(RowOf(running)))) {}

  // e = exp(slope * m) * rest.
  Slope OfFactor(const Expr& e) const;

 private:
  // e = slope * m + rest.
  Slope OfSummand(const Expr& e) const;
  bool Depends(const Expr& e) const;
  // What an elementwise stage says of the element that is read; null of anything else.
  Expr Definition(const Expr& load) const;
  bool IsRunning(const Expr& e) const { return e->op == Op::kLoad && e->buffer == running_.tensor; }
  bool IsOfOwnRow(const Expr& load) const {
    return load->args[axis_]->op == Op::kVar && load->args[axis_]->var == row_;
  }

  const Schedule& schedule_;
  const Var& row_;
  const ScheduledStage& running_;
  const size_t axis_;
};

Expr Dependence::Definition(const Expr& load) const {
  const int s = load->op == Op::kLoad ? schedule_.FindStage(load->buffer.get()) : -1;
  if (s < 0) return nullptr;
  const ScheduledStage& stage = schedule_.stages()[static_cast<size_t>(s)];
  if (stage.is_reduction()) return nullptr;
  return Substitute(stage.body, [&](const Var& v) -> Expr {
    const int axis = stage.FindAxis(v);
    return axis < 0 ? nullptr : load->args[static_cast<size_t>(axis)];
  });
}

bool Dependence::Depends(const Expr& e) const {
  if (IsRunning(e)) return true;
  if (e->op == Op::kLoad) {
    const int s = schedule_.FindStage(e->buffer.get());
    return s >= 0 && Depends(schedule_.stages()[static_cast<size_t>(s)].body);
  }
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& a) { return Depends(a); });
}

Slope Dependence::OfFactor(const Expr& e) const {
  if (!Depends(e)) return 0;
  switch (e->op) {
    case Op::kCast:
    case Op::kNeg:
      return OfFactor(e->args[0]);
    case Op::kExp:
      return OfSummand(e->args[0]);
    case Op::kMul:
    case Op::kDiv: {
      const Slope a = OfFactor(e->args[0]), b = OfFactor(e->args[1]);
      if (!a || !b) return std::nullopt;
      return e->op == Op::kMul ? *a + *b : *a - *b;
    }
    case Op::kSelect: {
      if (const Expr whole = WholeOf(e)) return OfFactor(whole);
      if (Depends(e->args[0])) return std::nullopt;
      const auto is_zero = [](const Expr& x) { return x->op == Op::kFloat && x->float_value == 0; };
      if (is_zero(e->args[2])) return OfFactor(e->args[1]);
      if (is_zero(e->args[1])) return OfFactor(e->args[2]);
      const Slope a = OfFactor(e->args[1]), b = OfFactor(e->args[2]);
      return a == b ? a : std::nullopt;
    }
    default: {
      const Expr definition = Definition(e);
      return definition == nullptr ? std::nullopt : OfFactor(definition);
    }
  }
}

Slope Dependence::OfSummand(const Expr& e) const {
  if (!Depends(e)) return 0;
  if (IsRunning(e)) return IsOfOwnRow(e) ? Slope(1) : std::nullopt;
  const auto number = [](const Expr& x) -> Slope {
    return x->op == Op::kFloat ? Slope(x->float_value) : std::nullopt;
  };
  const auto times = [](Slope a, Slope b) -> Slope {
    return a && b ? Slope(*a * *b) : std::nullopt;
  };
  switch (e->op) {
    case Op::kNeg:
      return times(-1, OfSummand(e->args[0]));
    case Op::kAdd:
    case Op::kSub: {
      const Slope a = OfSummand(e->args[0]), b = OfSummand(e->args[1]);
      if (!a || !b) return std::nullopt;
      return e->op == Op::kAdd ? *a + *b : *a - *b;
    }
    case Op::kMul:
      return Depends(e->args[0]) ? times(OfSummand(e->args[0]), number(e->args[1]))
                                 : times(number(e->args[0]), OfSummand(e->args[1]));
    case Op::kDiv: {
      const Slope by = number(e->args[1]);
      return by && *by != 0 ? times(OfSummand(e->args[0]), 1 / *by) : std::nullopt;
    }
    default: {
      const Expr definition = Definition(e);
      return definition == nullptr ? std::nullopt : OfSummand(definition);
    }
  }
}

}  // namespace

std::vector<int> RolledWith(const Schedule& schedule, int consumer) {
  std::vector<int> rolled;
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (s.consumer == consumer && s.Note<RollingUpdate>() != nullptr) {
      rolled.push_back(static_cast<int>(i));
    }
  }
  return rolled;
}

const Var& RowOf(const ScheduledStage& stage) {
  const auto* rows = stage.Note<RowFragment>();
  const std::string& name = rows != nullptr ? rows->row : stage.Note<Fragment>()->row;
  return stage.axes[static_cast<size_t>(stage.FindAxis(name))];
}

std::optional<double> SlopeOf(const Schedule& schedule, const ScheduledStage& sum,
                              const ScheduledStage& running) {
  return Dependence(schedule, sum, running).OfFactor(sum.body);
}

}  // namespace heddle::search_space
