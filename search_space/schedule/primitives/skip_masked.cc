#include "search_space/schedule/primitives/skip_masked.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "search_space/ir/parts.h"
#include "search_space/ir/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/operands.h"

namespace heddle::search_space {
namespace {

bool IsZero(const Expr& e) { return e->op == Op::kFloat && e->float_value == 0; }

// Does a comparison of indices, or one of several, say where terms are of use? Tensors of indices
// may be read there, as the lengths of sequences are.
bool IsMask(const Expr& c) {
  if (c->op == Op::kOr) return IsMask(c->args[0]) && IsMask(c->args[1]);
  return c->op == Op::kLt && c->args[0]->type == DType::kInt64;
}

bool Contains(const std::vector<Expr>& list, const Expr& e) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Expr& other) { return StructurallyEqual(e, other); });
}

// Comparisons of indices, all of which hold where a term of a sum is not zero. A factor may be what
// an elementwise stage computes, and may be converted.
class Factors {
 public:
  explicit Factors(const Schedule& schedule) : schedule_(schedule) {}

  void Add(const Expr& term) {
    // Where each of a chain of stages reads the one before at several places, the factors are
    // exponentially many. Those that were looked at tell what they tell without the others.
    if (left_-- <= 0) return;
    if (term->op == Op::kMul || term->op == Op::kCast) {
      for (const Expr& factor : term->args) Add(factor);
    }
    if (term->op == Op::kLoad) AddDefinition(term);
    if (const Expr whole = WholeOf(term)) Add(whole);
    if (term->op != Op::kSelect || !IsZero(term->args[2])) return;
    for (const Expr& c : Conjuncts(Simplify(term->args[0]))) conditions_.push_back(c);
    Add(term->args[1]);
  }
  const std::vector<Expr>& conditions() const { return conditions_; }

 private:
  static constexpr int kMost = 256;

  void AddDefinition(const Expr& load) {
    const int s = schedule_.FindStage(load->buffer.get());
    if (s < 0 || schedule_.stages()[static_cast<size_t>(s)].is_reduction()) return;
    if (Contains(seen_, load)) return;
    seen_.push_back(load);
    const ScheduledStage& stage = schedule_.stages()[static_cast<size_t>(s)];
    Add(Substitute(stage.body, [&](const Var& v) -> Expr {
      const int axis = stage.FindAxis(v);
      return axis < 0 ? nullptr : load->args[static_cast<size_t>(axis)];
    }));
  }

  const Schedule& schedule_;
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
          if (index->op == Op::kVar && index->var == v) return VarExpr(read_.axes[a]);
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
  const ScheduledStage& result = schedule.stages()[static_cast<size_t>(*reader)];
  if (result.is_output || result.is_reduction()) return {};
  if (!ReadsAtOwnElement(result, reduction.tensor)) return {};
  Readers of_result(result);
  for (int r : schedule.ReadersOf(result.tensor.get())) {
    of_result.Add(schedule.stages()[static_cast<size_t>(r)].body, {});
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

}  // namespace

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
  Factors factors(editor.schedule());
  factors.Add(here->body);
  conditions.insert(conditions.end(), factors.conditions().begin(), factors.conditions().end());
  std::erase_if(conditions, [](const Expr& c) { return !IsMask(c); });
  if (conditions.empty()) {
    return Refuse(absl::StrCat("no term of ", stage,
                               " has a factor select(c, x, 0), nor is it only read under a "
                               "condition"));
  }
  here->useful = std::move(conditions);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
