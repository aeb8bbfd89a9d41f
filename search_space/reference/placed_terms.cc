#include "search_space/reference/placed_terms.h"

#include <algorithm>
#include <utility>

#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/named_place.h"

namespace heddle::search_space {
namespace {

// Do all loads stay inside their tensors whatever the values of the axes are? Others are read under
// conditions only.
bool IsReadAnywhere(const Expr& e) {
  bool is_inside = true;
  Visit(e, [&](const Expr& load) {
    if (load->op != Op::kLoad) return;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const Interval range = BoundsOf(load->args[d]);
      is_inside = is_inside && range.min >= 0 && range.max < load->buffer->shape[d];
    }
  });
  return is_inside;
}

class Matcher {
 public:
  Matcher(const TensorProgram& program, const Stage& stage)
      : program_(program),
        stage_(stage),
        identity_(IdentityOf(stage.combiner, stage.body->type)->float_value) {
    found_.keys.resize(stage.axes.size());
  }

  std::optional<PlacedTerms> Run() {
    // Of a single term the element is a copy, exact where that is.
    if (ExtentOf(stage_.reduce_axes) < 2 || !ReadsConditions(stage_.body)) return std::nullopt;
    for (size_t i = 0; i < stage_.axes.size(); ++i) {
      if (found_.HasKey(i)) keyed_.push_back(stage_.axes[i]);
    }
    for (const std::vector<Expr>* all : {&found_.keys, &found_.compared, &found_.factors}) {
      const auto is_of_term = [&](const Expr& e) {
        return e == nullptr || (!MentionsAnyOf(e, keyed_) && IsReadAnywhere(e));
      };
      if (!std::all_of(all->begin(), all->end(), is_of_term)) return std::nullopt;
    }
    return std::move(found_);
  }

 private:
  // The factor of a product that has the conditions, or the value itself. False where none names a
  // place.
  bool ReadsConditions(const Expr& value) {
    if (value->op != Op::kMul) return ReadsSelects(value);
    if (stage_.combiner != Combiner::kSum) return false;
    for (const size_t side : {0, 1}) {
      if (!ReadsConditions(value->args[side])) continue;
      found_.factors.push_back(value->args[1 - side]);
      return true;
    }
    return false;
  }

  // Selects against the identity, one in another, as far as they name places: what those inside
  // choose is the place's own value.
  bool ReadsSelects(Expr value) {
    std::vector<Expr> conditions;
    size_t end = 0;
    while (value->op == Op::kSelect && IsIdentity(value->args[2])) {
      conditions.push_back(value->args[0]);
      if (NamesPlaces(value->args[0])) end = conditions.size();
      value = value->args[1];
    }
    for (size_t c = 0; c < end; ++c) ReadCompared(conditions[c]);
    return end > 0;
  }

  bool IsIdentity(const Expr& e) const {
    return e->op == Op::kFloat && e->float_value == identity_;
  }

  bool NamesPlaces(const Expr& condition) {
    bool names = false;
    for (const Expr& c : Conjuncts(Simplify(condition))) {
      std::optional<NamedPlace> key = NamedPlaceOf(stage_.axes, stage_.reduce_axes, found_.keys, c);
      if (!key) key = PlaceByValue(c);
      if (!key) continue;
      found_.keys[key->axis] = std::move(key->place);
      names = true;
    }
    return names;
  }

  // Of a comparison of an axis with a value that was computed, as an argmax.
  std::optional<NamedPlace> PlaceByValue(const Expr& condition) const {
    if (condition->op != Op::kEq || !IsFloat(condition->args[0]->type)) return std::nullopt;
    for (const size_t side : {0, 1}) {
      const Expr &converted = condition->args[side], &place = condition->args[1 - side];
      if (converted->op != Op::kCast || converted->args[0]->op != Op::kVar) continue;
      const auto axis = static_cast<size_t>(
          std::find(stage_.axes.begin(), stage_.axes.end(), converted->args[0]->var) -
          stage_.axes.begin());
      if (axis == stage_.axes.size() || found_.HasKey(axis)) continue;
      if (MentionsAnyOf(place, stage_.reduce_axes)) return NamedPlace{axis, place};
    }
    return std::nullopt;
  }

  void ReadCompared(const Expr& condition) {
    Visit(condition, [&](const Expr& e) {
      if (e->type != DType::kBool || e->args.empty() || !IsFloat(e->args[0]->type)) return;
      for (const Expr& operand : e->args) {
        if (!IsNumber(operand)) found_.compared.push_back(operand);
      }
    });
  }

  // Nothing has rounded it, whatever the values are.
  bool IsNumber(const Expr& e) const {
    if (e->op == Op::kFloat) return true;
    if (e->op == Op::kLoad) return program_.FindStage(e->buffer.get()) == nullptr;
    return e->op == Op::kCast && !IsFloat(e->args[0]->type);
  }

  const TensorProgram& program_;
  const Stage& stage_;
  const double identity_;
  std::vector<Var> keyed_;
  PlacedTerms found_;
};

}  // namespace

std::optional<PlacedTerms> PlacedTermsOf(const TensorProgram& program, const Stage& stage) {
  if (!stage.is_reduction()) return std::nullopt;
  return Matcher(program, stage).Run();
}

}  // namespace heddle::search_space
