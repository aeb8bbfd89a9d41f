#include "search_space/schedule/analysis/falling_levels.h"

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

// Definitions that read one another are looked through so often.
constexpr int kMostLooks = 200;

struct Sign {
  bool may_be_negative = true, may_be_positive = true;
};

Sign Opposite(Sign s) { return {s.may_be_positive, s.may_be_negative}; }

// Along an axis.
struct Trend {
  bool may_fall = true, may_rise = true;
};

Trend Opposite(Trend t) { return {t.may_rise, t.may_fall}; }

class Levels {
 public:
  Levels(const Schedule& schedule, const Var& axis) : schedule_(schedule), axis_(axis) {}

  Trend TrendOf(const Expr& e) {
    if (!MentionsAny(e, {axis_.get()})) return {false, false};
    if (left_-- <= 0) return {};
    switch (e->op) {
      case Op::kCast:
        return TrendOf(e->args[0]);
      case Op::kNeg:
        return Opposite(TrendOf(e->args[0]));
      case Op::kAdd:
      case Op::kSub: {
        const Trend a = TrendOf(e->args[0]), b = TrendOf(e->args[1]);
        const Trend second = e->op == Op::kSub ? Opposite(b) : b;
        return {a.may_fall || second.may_fall, a.may_rise || second.may_rise};
      }
      case Op::kMul:
      case Op::kDiv: {
        const size_t number = e->args[1]->op == Op::kFloat ? 1 : 0;
        if (e->args[number]->op != Op::kFloat || (e->op == Op::kDiv && number == 0)) return {};
        const Trend other = TrendOf(e->args[1 - number]);
        return e->args[number]->float_value < 0 ? Opposite(other) : other;
      }
      case Op::kLoad:
        return TrendOfLoad(e);
      default:
        return {};
    }
  }

 private:
  const ScheduledStage* StageOf(const Expr& load) const {
    const int s = schedule_.FindStage(load->buffer.get());
    return s < 0 ? nullptr : &schedule_.stage(s);
  }

  Trend TrendOfLoad(const Expr& load) {
    const ScheduledStage* read = StageOf(load);
    if (read == nullptr) return {};
    if (!read->is_reduction()) return TrendOf(Substitute(read->body, read->axes, load->args));
    const auto mask = PrefixMaskOf(*read);
    if (!mask || mask->level != nullptr || mask->in_windows || read->combiner != Combiner::kSum) {
      return {};
    }
    for (size_t d = 0; d < load->args.size(); ++d) {
      const Expr& index = load->args[d];
      const bool is_axis = IsVar(index, axis_);
      if (d == mask->axis ? !is_axis : MentionsAny(index, {axis_.get()})) return {};
    }
    // The further along, the more terms, or the fewer.
    const Sign terms = SignOf(read->body);
    const Trend forwards = {terms.may_be_negative, terms.may_be_positive};
    return mask->reversed ? Opposite(forwards) : forwards;
  }

  Sign SignOf(const Expr& e) {
    if (left_-- <= 0) return {};
    const auto of = [&](size_t i) { return SignOf(e->args[i]); };
    switch (e->op) {
      case Op::kFloat:
        return {!(e->float_value >= 0), !(e->float_value <= 0)};
      case Op::kAbs:
      case Op::kExp:
      case Op::kSqrt:
      case Op::kSigmoid:
        return {false, true};
      case Op::kCast:
        return IsFloat(e->args[0]->type) ? of(0) : Sign();
      case Op::kNeg:
        return Opposite(of(0));
      case Op::kAdd:
        return Either(of(0), of(1));
      case Op::kSub:
        return Either(of(0), Opposite(of(1)));
      case Op::kSelect:
        return Either(of(1), of(2));
      case Op::kMin: {
        const Sign a = of(0), b = of(1);
        return {a.may_be_negative || b.may_be_negative, a.may_be_positive && b.may_be_positive};
      }
      case Op::kMax: {
        const Sign a = of(0), b = of(1);
        return {a.may_be_negative && b.may_be_negative, a.may_be_positive || b.may_be_positive};
      }
      case Op::kMul:
        if (StructurallyEqual(e->args[0], e->args[1])) return {false, true};
        return Product(of(0), of(1));
      case Op::kDiv:
        return Product(of(0), of(1));
      case Op::kLoad: {
        const ScheduledStage* read = StageOf(e);
        if (read == nullptr) return {};
        if (read->is_reduction() && read->combiner != Combiner::kSum) return {};
        return SignOf(read->body);
      }
      default:
        return {};
    }
  }
  static Sign Either(Sign a, Sign b) {
    return {a.may_be_negative || b.may_be_negative, a.may_be_positive || b.may_be_positive};
  }
  static Sign Product(Sign a, Sign b) {
    return {(a.may_be_negative && b.may_be_positive) || (a.may_be_positive && b.may_be_negative),
            (a.may_be_negative && b.may_be_negative) || (a.may_be_positive && b.may_be_positive)};
  }

  const Schedule& schedule_;
  const Var& axis_;
  int left_ = kMostLooks;
};

}  // namespace

bool DoLevelsFall(const Schedule& schedule, const ScheduledStage& stage, const PrefixMask& mask) {
  const Trend level = Levels(schedule, stage.axes[mask.axis]).TrendOf(mask.level);
  const Trend exponent = mask.slope < 0 ? Opposite(level) : level;
  return mask.reversed ? !exponent.may_fall : !exponent.may_rise;
}

}  // namespace heddle::search_space
