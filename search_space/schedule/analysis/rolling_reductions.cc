#include "search_space/schedule/analysis/rolling_reductions.h"

#include <algorithm>
#include <limits>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/matrix/row_fragment.h"

namespace heddle::search_space {
namespace {

using Slope = std::optional<double>;

class Dependence {
 public:
  Dependence(const BufferRef& running, const std::function<bool(const Expr&)>& is_own,
             const DefinitionOf& definition_of)
      : running_(running), is_own_(is_own), definition_of_(definition_of) {}

  // e = exp(slope * m) * rest.
  Slope OfFactor(const Expr& e) const;

 private:
  // Of a and b, where they have the same; of one alone where the other is 0.
  Slope OfEither(const Expr& a, const Expr& b) const;
  // e = slope * m + rest.
  Slope OfSummand(const Expr& e) const;
  bool Depends(const Expr& e) const;
  // What an elementwise stage says of the element that is read; null of anything else.
  Expr Inlined(const Expr& load) const;
  bool IsRunning(const Expr& e) const { return e->op == Op::kLoad && e->buffer == running_; }

  const BufferRef& running_;
  const std::function<bool(const Expr&)>& is_own_;
  const DefinitionOf& definition_of_;
};

Expr Dependence::Inlined(const Expr& load) const {
  if (load->op != Op::kLoad) return nullptr;
  const std::optional<Definition> stage = definition_of_(load->buffer.get());
  if (!stage || stage->is_reduction) return nullptr;
  return Substitute(stage->body, stage->axes, load->args);
}

bool Dependence::Depends(const Expr& e) const {
  if (IsRunning(e)) return true;
  if (e->op == Op::kLoad) {
    const std::optional<Definition> stage = definition_of_(e->buffer.get());
    return stage && Depends(stage->body);
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
      return Depends(e->args[0]) ? std::nullopt : OfEither(e->args[1], e->args[2]);
    }
    // With a factor more than 0 these are as many times what they are without it.
    case Op::kAbs:
      return OfFactor(e->args[0]);
    case Op::kAdd:
    case Op::kSub:
    case Op::kMax:
    case Op::kMin:
      return OfEither(e->args[0], e->args[1]);
    default: {
      const Expr definition = Inlined(e);
      return definition == nullptr ? std::nullopt : OfFactor(definition);
    }
  }
}

Slope Dependence::OfEither(const Expr& a, const Expr& b) const {
  const auto is_zero = [](const Expr& x) { return x->op == Op::kFloat && x->float_value == 0; };
  if (is_zero(b)) return OfFactor(a);
  if (is_zero(a)) return OfFactor(b);
  const Slope of_a = OfFactor(a), of_b = OfFactor(b);
  return of_a == of_b ? of_a : std::nullopt;
}

Slope Dependence::OfSummand(const Expr& e) const {
  if (!Depends(e)) return 0;
  if (IsRunning(e)) return is_own_(e) ? Slope(1) : std::nullopt;
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
      const Expr definition = Inlined(e);
      return definition == nullptr ? std::nullopt : OfSummand(definition);
    }
  }
}

}  // namespace

Expr LeastNumber(Combiner combiner, DType type) {
  const double lowest = std::numeric_limits<float>::lowest();
  return Float(combiner == Combiner::kMax ? lowest : -lowest, type);
}

Expr Bounded(Combiner combiner, const Expr& value) {
  return Combine(combiner, value, LeastNumber(combiner, value->type));
}

std::optional<double> SlopeIn(const Expr& term, const BufferRef& running,
                              const std::function<bool(const Expr& load)>& is_own,
                              const DefinitionOf& definition_of) {
  return Dependence(running, is_own, definition_of).OfFactor(term);
}

std::optional<double> SlopeOf(const Schedule& schedule, const ScheduledStage& sum,
                              const ScheduledStage& running) {
  const Var& row = RowOf(sum);
  const auto axis = running.AxisOf(RowOf(running));
  const auto is_own = [&](const Expr& load) { return IsVar(load->args[axis], row); };
  const auto definition_of = [&](const Buffer* tensor) -> std::optional<Definition> {
    const int s = schedule.FindStage(tensor);
    if (s < 0) return std::nullopt;
    const ScheduledStage& stage = schedule.stage(s);
    return Definition{stage.axes, stage.body, stage.is_reduction()};
  };
  return SlopeIn(sum.body, running.tensor, is_own, definition_of);
}

}  // namespace heddle::search_space
