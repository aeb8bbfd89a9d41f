#include "search_space/schedule/loops/skip_masked.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

bool IsZero(const Expr& e) { return e->op == Op::kFloat && e->float_value == 0; }

// Does a comparison of indices, or one of several, say where terms are of use? Tensors of indices
// may be read there, as the lengths of sequences are.
bool IsMask(const Expr& c) {
  if (c->op == Op::kOr) return IsMask(c->args[0]) && IsMask(c->args[1]);
  return c->op == Op::kLt && c->args[0]->type == DType::kInt64;
}

// Conditions all of which hold where `c` does, and none of which has an `and` within: (a and b) or
// c is (a or c) and (b or c). Where they would be very many they are some of these. That two are in
// the same block, i / 64 = j / 64, is neither's being less.
std::vector<Expr> WithoutAnds(const Expr& c) {
  constexpr size_t kMost = 16;
  if (c->op == Op::kEq && c->args[0]->type == DType::kInt64 && HasQuotient(c->args[0]) &&
      HasQuotient(c->args[1])) {
    return {c->args[0] < c->args[1] + Int(1), c->args[1] < c->args[0] + Int(1)};
  }
  if (c->op != Op::kAnd && c->op != Op::kOr) return {c};
  std::vector<Expr> first = WithoutAnds(c->args[0]);
  const std::vector<Expr> second = WithoutAnds(c->args[1]);
  if (c->op == Op::kAnd) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  std::vector<Expr> all;
  for (const Expr& a : first) {
    for (const Expr& b : second) {
      if (all.size() < kMost) all.push_back(MakeExpr(Op::kOr, {a, b}));
    }
  }
  return all;
}

bool Contains(const std::vector<Expr>& list, const Expr& e) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Expr& other) { return StructurallyEqual(e, other); });
}

// Less than any score: what exp makes of it is zero.
constexpr double kFill = -1e30;

double PositiveNumber(const Expr& e) { return e->op == Op::kFloat ? e->float_value : 0; }

// Comparisons of indices, all of which hold where a term of a sum is not zero. A factor may be what
// an elementwise stage computes, and may be converted; it may be the exponential of what is least
// where they do not hold, less the greatest of that along what is summed.
class Factors {
 public:
  Factors(const Schedule& schedule, const ScheduledStage& sum) : schedule_(schedule), sum_(sum) {}

  void Add(const Expr& term) {
    // Where each of a chain of stages reads the one before at several places, the factors are
    // exponentially many. Those that were looked at tell what they tell without the others.
    if (left_-- <= 0) return;
    if (term->op == Op::kMul || term->op == Op::kCast || term->op == Op::kAbs ||
        term->op == Op::kNeg || IsRectified(term)) {
      for (const Expr& factor : term->args) Add(factor);
    }
    if (term->op == Op::kLoad) AddDefinition(term);
    if (term->op == Op::kExp) AddExponent(term->args[0]);
    if (const Expr whole = WholeOf(term)) Add(whole);
    if (term->op != Op::kSelect || !IsZero(term->args[2])) return;
    for (const Expr& c : Conjuncts(Simplify(term->args[0]))) conditions_.push_back(c);
    Add(term->args[1]);
  }
  // Of a maximum: where a term is not less than any score.
  void AddFilled(const Expr& term) {
    if (const auto filled = FilledIn(term)) {
      conditions_.insert(conditions_.end(), filled->begin(), filled->end());
    }
  }
  const std::vector<Expr>& conditions() const { return conditions_; }

 private:
  static constexpr int kMost = 256;

  void AddDefinition(const Expr& load) {
    if (StageOf(load) == nullptr || StageOf(load)->is_reduction()) return;
    if (Contains(seen_, load)) return;
    seen_.push_back(load);
    Add(DefinitionOf(load));
  }

  // max(x, 0) and min(x, 0) are zero where x is.
  static bool IsRectified(const Expr& e) {
    return (e->op == Op::kMax || e->op == Op::kMin) && (IsZero(e->args[0]) || IsZero(e->args[1]));
  }

  // Null: of an input.
  const ScheduledStage* StageOf(const Expr& load) const {
    const int s = schedule_.FindStage(load->buffer.get());
    return s < 0 ? nullptr : &schedule_.stage(s);
  }

  Expr DefinitionOf(const Expr& load) const {
    const ScheduledStage& stage = *StageOf(load);
    return Substitute(stage.body, stage.axes, load->args);
  }

  void AddExponent(const Expr& exponent) {
    const std::optional<std::vector<Expr>> filled = FilledIn(exponent);
    // A row of which nothing is left has the fill for its greatest, and weights of 1.
    if (!filled.has_value()) return;
    const bool is_zero =
        std::any_of(sum_.reduce_axes.begin(), sum_.reduce_axes.end(), [&](const Var& reduced) {
          return HoldSomewhere(*filled, reduced) && IsNoOtherFill(exponent, *filled, reduced);
        });
    if (is_zero) conditions_.insert(conditions_.end(), filled->begin(), filled->end());
  }

  // Are all greatest elements that the expression reads of rows along that axis?
  bool IsNoOtherFill(const Expr& e, const std::vector<Expr>& filled, const Var& reduced) {
    if (left_-- <= 0) return false;
    if (e->op == Op::kLoad && StageOf(e) != nullptr) {
      const ScheduledStage& read = *StageOf(e);
      if (!read.is_reduction()) return IsNoOtherFill(DefinitionOf(e), filled, reduced);
      return read.combiner == Combiner::kSum || IsGreatestOf(e, read, filled, reduced);
    }
    return std::all_of(e->args.begin(), e->args.end(),
                       [&](const Expr& arg) { return IsNoOtherFill(arg, filled, reduced); });
  }

  // Is the element that is read the greatest of what has the same fill along that axis?
  bool IsGreatestOf(const Expr& load, const ScheduledStage& read, const std::vector<Expr>& filled,
                    const Var& reduced) {
    if (read.combiner != Combiner::kMax || read.reduce_axes.size() != 1 ||
        MentionsAny(load, {reduced.get()})) {
      return false;
    }
    const auto of_terms = FilledIn(read.body);
    if (!of_terms.has_value() || of_terms->size() != filled.size()) return false;
    return std::all_of(of_terms->begin(), of_terms->end(), [&](const Expr& c) {
      return Contains(filled, Simplify(Substitute(c, [&](const Var& v) -> Expr {
                        if (v == read.reduce_axes[0]) return VarExpr(reduced);
                        const int axis = read.FindAxis(v);
                        return axis < 0 ? nullptr : load->args[static_cast<size_t>(axis)];
                      })));
    });
  }

  // Conditions where an expression is not less than any score.
  std::optional<std::vector<Expr>> FilledIn(const Expr& e) {
    if (left_-- <= 0) return std::nullopt;
    const auto of = [&](size_t arg) { return FilledIn(e->args[arg]); };
    switch (e->op) {
      case Op::kSelect:
        if (e->args[2]->op != Op::kFloat || e->args[2]->float_value > kFill) return std::nullopt;
        return Conjuncts(Simplify(e->args[0]));
      case Op::kCast:
      case Op::kSub:
        return of(0);
      case Op::kAdd: {
        auto first = of(0);
        return first.has_value() ? first : of(1);
      }
      case Op::kMul:
        if (PositiveNumber(e->args[0]) > 0) return of(1);
        return PositiveNumber(e->args[1]) > 0 ? of(0) : std::nullopt;
      case Op::kDiv:
        return PositiveNumber(e->args[1]) > 0 ? of(0) : std::nullopt;
      case Op::kLoad: {
        const ScheduledStage* read = StageOf(e);
        if (read == nullptr || read->is_reduction()) return std::nullopt;
        return FilledIn(DefinitionOf(e));
      }
      default:
        return std::nullopt;
    }
  }

  // For one term along that axis: the first, the last, or that at the place of the result?
  bool HoldSomewhere(const std::vector<Expr>& conditions, const Var& reduced) const {
    std::vector<Expr> places = {Int(0), Int(reduced->extent - 1)};
    for (const Var& axis : sum_.axes) {
      if (axis->extent == reduced->extent) places.push_back(VarExpr(axis));
    }
    return std::any_of(places.begin(), places.end(), [&](const Expr& place) {
      const auto at = [&](const Var& v) { return v == reduced ? place : nullptr; };
      return std::all_of(conditions.begin(), conditions.end(), [&](const Expr& condition) {
        return IsInt(Simplify(Substitute(condition, at)), 1);
      });
    });
  }

  const Schedule& schedule_;
  const ScheduledStage& sum_;
  int left_ = kMost;
  std::vector<Expr> seen_, conditions_;
};

// The comparisons under which every read of one tensor stands, in the axes of the stage that
// defines it.
class Readers {
 public:
  explicit Readers(const ScheduledStage& read) : read_(read) {}

  void Add(const Expr& e, const std::vector<Expr>& around) {
    if (e->op == Op::kLoad && e->buffer == read_.tensor) return AddRead(e, around);
    for (size_t i = 0; i < e->args.size(); ++i) {
      std::vector<Expr> inside = around;
      if (e->op == Op::kSelect && i == 1) {
        for (const Expr& c : Conjuncts(Simplify(e->args[0]))) inside.push_back(c);
      }
      Add(e->args[i], inside);
    }
  }
  std::vector<Expr> common() const { return common_.value_or(std::vector<Expr>()); }

 private:
  void AddRead(const Expr& load, const std::vector<Expr>& around) {
    std::vector<Expr> here;
    for (const Expr& c : around) {
      bool known = true;
      const Expr in_axes = Simplify(Substitute(c, [&](const Var& v) -> Expr {
        for (size_t a = 0; a < load->args.size(); ++a) {
          const Expr& index = load->args[a];
          if (IsVar(index, v)) return VarExpr(read_.axes[a]);
        }
        known = false;
        return nullptr;
      }));
      if (known && (!common_.has_value() || Contains(*common_, in_axes))) here.push_back(in_axes);
    }
    common_ = std::move(here);
  }

  const ScheduledStage& read_;
  std::optional<std::vector<Expr>> common_;
};

// The same of all readers of the result, which `reduction` is reduced for.
std::vector<Expr> ReadUnder(const Schedule& schedule, const ScheduledStage& reduction) {
  const std::optional<int> reader = schedule.OnlyReaderOf(reduction.tensor.get());
  if (!reader) return {};
  const ScheduledStage& result = schedule.stage(*reader);
  if (result.is_output || result.is_reduction()) return {};
  if (!ReadsAtOwnElement(result, reduction.tensor)) return {};
  Readers of_result(result);
  for (int r : schedule.ReadersOf(result.tensor.get())) {
    of_result.Add(schedule.stage(r).body, {});
  }
  std::vector<Expr> conditions;
  for (const Expr& c : of_result.common()) {
    conditions.push_back(Substitute(c, [&](const Var& v) -> Expr {
      const int axis = result.FindAxis(v);
      return axis < 0 ? nullptr : VarExpr(reduction.axes[static_cast<size_t>(axis)]);
    }));
  }
  return conditions;
}

// The comparisons of which all hold where the conditions do.
std::vector<Expr> MasksIn(const std::vector<Expr>& conditions) {
  std::vector<Expr> masks;
  for (const Expr& c : conditions) {
    for (const Expr& part : WithoutAnds(c)) {
      if (IsMask(part)) masks.push_back(part);
    }
  }
  return masks;
}

// Where the terms of a sum, or what is made of its result, read a reduction.
class PlaceOfReduction {
 public:
  PlaceOfReduction(const Schedule& schedule, const ScheduledStage& sum,
                   const ScheduledStage& reduction)
      : schedule_(schedule), sum_(sum), reduction_(reduction) {}

  // The indices, in the axes of the sum; nothing where it is not read, or not only at one place.
  std::optional<ExprList> Find() {
    Look(sum_.body);
    if (const auto reader = schedule_.OnlyReaderOf(sum_.tensor.get())) {
      const ScheduledStage& result = schedule_.stage(*reader);
      const bool is_own = !result.is_reduction() && ReadsAtOwnElement(result, sum_.tensor);
      if (is_own && result.axes.size() == sum_.axes.size()) {
        ExprList axes;
        for (const Var& axis : sum_.axes) axes.push_back(VarExpr(axis));
        Look(Substitute(result.body, result.axes, axes));
      }
    }
    return is_one_ && left_ > 0 ? place_ : std::nullopt;
  }

 private:
  static constexpr int kMost = 256;

  void Look(const Expr& e) {
    if (left_-- <= 0) return;
    if (e->op != Op::kLoad) {
      for (const Expr& arg : e->args) Look(arg);
      return;
    }
    if (e->buffer == reduction_.tensor) {
      const auto is_same = [](const Expr& a, const Expr& b) { return StructurallyEqual(a, b); };
      is_one_ = is_one_ && (!place_ || std::equal(place_->begin(), place_->end(), e->args.begin(),
                                                  e->args.end(), is_same));
      place_ = e->args;
      return;
    }
    const int s = schedule_.FindStage(e->buffer.get());
    if (s < 0 || schedule_.stage(s).is_reduction()) return;
    Look(Substitute(schedule_.stage(s).body, schedule_.stage(s).axes, e->args));
  }

  const Schedule& schedule_;
  const ScheduledStage& sum_;
  const ScheduledStage& reduction_;
  int left_ = kMost;
  bool is_one_ = true;
  std::optional<ExprList> place_;
};

}  // namespace

bool MayBeLeftOutWith(const Schedule& schedule, const ScheduledStage& sum,
                      const ScheduledStage& reduction) {
  if (reduction.reduce_axes.size() != 1) return false;
  const Var& term = reduction.reduce_axes[0];
  const auto is_same = [&](const Var& r) { return r->extent == term->extent; };
  const auto same = std::find_if(sum.reduce_axes.begin(), sum.reduce_axes.end(), is_same);
  const auto place = PlaceOfReduction(schedule, sum, reduction).Find();
  if (!place || std::count_if(sum.reduce_axes.begin(), sum.reduce_axes.end(), is_same) != 1) {
    return false;
  }
  Factors factors(schedule, reduction);
  if (reduction.combiner == Combiner::kSum) {
    factors.Add(reduction.body);
  } else if (reduction.combiner == Combiner::kMax) {
    factors.AddFilled(reduction.body);
  }
  std::vector<Expr> masks;
  for (const Expr& mask : MasksIn(factors.conditions())) {
    masks.push_back(Simplify(Substitute(mask, [&](const Var& v) -> Expr {
      if (v == term) return VarExpr(*same);
      const int axis = reduction.FindAxis(v);
      return axis < 0 ? nullptr : (*place)[static_cast<size_t>(axis)];
    })));
  }
  return std::all_of(sum.useful.begin(), sum.useful.end(),
                     [&](const Expr& mask) { return Contains(masks, Simplify(mask)); });
}

absl::Status SkipMasked::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  if (here->combiner != Combiner::kSum || editor.schedule().HasCompanions(*here)) {
    return Refuse(absl::StrCat(stage, " is no sum that is computed alone"));
  }
  if (!here->untouched || here->consumer >= 0) {
    return Refuse(
        absl::StrCat("skip_masked must come before other changes to the loops of ", stage));
  }
  std::vector<Expr> conditions = ReadUnder(editor.schedule(), *here);
  Factors factors(editor.schedule(), *here);
  factors.Add(here->body);
  conditions.insert(conditions.end(), factors.conditions().begin(), factors.conditions().end());
  std::vector<Expr> masks = MasksIn(conditions);
  if (masks.empty()) {
    return Refuse(absl::StrCat("no term of ", stage,
                               " has a factor select(c, x, 0), nor is it only read under a "
                               "condition"));
  }
  here->useful = std::move(masks);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
