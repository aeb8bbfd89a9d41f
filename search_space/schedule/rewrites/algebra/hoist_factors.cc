#include "search_space/schedule/rewrites/algebra/hoist_factors.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

bool ReadsValues(const Expr& e) {
  bool reads = false;
  Visit(e, [&](const Expr& node) { reads = reads || IsValueLoad(node); });
  return reads;
}

bool ReadsSeveral(const Expr& e) {
  const Buffer* first = nullptr;
  bool several = false;
  Visit(e, [&](const Expr& node) {
    if (!IsValueLoad(node)) return;
    several = several || (first != nullptr && first != node->buffer.get());
    first = node->buffer.get();
  });
  return several;
}

// Tells whether what a stage's elements are along some of its axes is made of reductions.
class Origins {
 public:
  explicit Origins(const TensorProgram& program) : program_(program) {}

  // Of the stages that `value` reads at places that depend on one of `along`.
  bool AreReductions(const Expr& value, const Variables& along) {
    bool are = false;
    Visit(value, [&](const Expr& e) { are = are || (IsValueLoad(e) && IsMade(e, along)); });
    return are;
  }

 private:
  bool IsMade(const Expr& load, const Variables& along) {
    const Stage* stage = program_.FindStage(load->buffer.get());
    if (stage == nullptr) return false;
    std::vector<bool> depends;
    Variables axes;
    for (size_t d = 0; d < load->args.size(); ++d) {
      depends.push_back(MentionsAny(load->args[d], along));
      if (depends.back()) axes.push_back(stage->axes[d].get());
    }
    if (axes.empty()) return false;
    if (stage->is_reduction()) return true;
    // Stages that several read are looked at once.
    const auto key = std::make_pair(stage, std::move(depends));
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const bool is_made = AreReductions(stage->body, axes);
    known_.emplace(key, is_made);
    return is_made;
  }

  const TensorProgram& program_;
  std::map<std::pair<const Stage*, std::vector<bool>>, bool> known_;
};

// Is the reduction's term at `axis`, in the place of its one reduced axis, the expression, where it
// is read by `load`?
bool IsTermAt(const Stage& reduction, const Expr& load, const Var& axis, const Expr& e) {
  if (reduction.reduce_axes.size() != 1) return false;
  const Expr row = Substitute(reduction.body, reduction.axes, load->args);
  return StructurallyEqual(Substitute(row, reduction.reduce_axes, {VarExpr(axis)}), e);
}

// Is `weight` divided by `sum` a softmax's along `axis`: exp((S - M) * c) with M the maximum of S
// along the row, c > 0, over the sum of these? Then one weight of each row is 1, and none is more.
bool IsSoftmax(const TensorProgram& program, const Expr& weight, const Expr& sum, const Var& axis) {
  const auto is_scale = [](const Expr& s) { return s->op == Op::kFloat && s->float_value > 0; };
  const auto stage_of = [&](const Expr& load, Combiner combiner) -> const Stage* {
    const Stage* stage = load->op == Op::kLoad ? program.FindStage(load->buffer.get()) : nullptr;
    return stage != nullptr && stage->combiner == combiner ? stage : nullptr;
  };
  const Stage* total = stage_of(sum, Combiner::kSum);
  if (total == nullptr || !IsTermAt(*total, sum, axis, weight) || weight->op != Op::kExp) {
    return false;
  }
  Expr exponent = weight->args[0];
  const bool is_scaled = exponent->op == Op::kMul || exponent->op == Op::kDiv;
  if (is_scaled && is_scale(exponent->args[1])) exponent = exponent->args[0];
  if (exponent->op != Op::kSub) return false;
  const Stage* most = stage_of(exponent->args[1], Combiner::kMax);
  return most != nullptr && IsTermAt(*most, exponent->args[1], axis, exponent->args[0]);
}

// Takes a product apart into what is the same wherever some variables are, and the rest.
class Product {
 public:
  Product(const TensorProgram& program, Variables along)
      : program_(program), along_(std::move(along)) {}

  // What is left of `e`, a factor, or where `under` is set a divisor; null: nothing is.
  Expr RestOf(const Expr& e, bool under = false) {
    if (!MentionsAny(e, along_)) {
      if (!ReadsValues(e)) return e;
      hoisted_.emplace_back(under ? Op::kDiv : Op::kMul, e);
      return nullptr;
    }
    const bool is_rounded = e->op == Op::kCast && e->args[0]->op == Op::kLoad;
    if ((e->op == Op::kLoad || is_rounded) && !under) return RestOfStage(e);
    if (e->op != Op::kMul && e->op != Op::kDiv) return e;
    const bool divides = e->op == Op::kDiv;
    const Expr left = RestOf(e->args[0], under), right = RestOf(e->args[1], under != divides);
    if (left == e->args[0] && right == e->args[1]) return e;
    if (right == nullptr) return left;
    if (divides) return (left == nullptr ? Float(1, e->type) : left) / right;
    return left == nullptr ? right : left * right;
  }

  // One after another: what several make may be out of range.
  Expr Times(Expr sum) const {
    for (const auto& [op, factor] : hoisted_) sum = op == Op::kMul ? sum * factor : sum / factor;
    return sum;
  }
  // Elementwise stages without their factors: of which the rest of the product has what is left,
  // or, where they are rounded, which are that now.
  struct TakenApart {
    const Buffer* stage;
    Expr rounded;  // what it computes now; null: it is gone
  };
  const std::vector<TakenApart>& taken_apart() const { return taken_apart_; }

 private:
  // Of the element of a stage, converted perhaps, what is left of that which makes it, where
  // something is hoisted.
  Expr RestOfStage(const Expr& e) {
    const Expr& load = WithoutCast(e);
    const Stage* stage = program_.FindStage(load->buffer.get());
    if (stage == nullptr || stage->is_reduction() || stage->is_output ||
        CountReads(load->buffer.get()) != 1) {
      return e;
    }
    std::vector<Var> axes;
    Variables along;
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (!MentionsAny(load->args[d], along_)) continue;
      axes.push_back(stage->axes[d]);
      along.push_back(axes.back().get());
    }
    Product inside(program_, std::move(along));
    const Expr rest = inside.RestOf(stage->body);
    const bool is_rounded = IsHalf(stage->tensor->dtype);
    if (rest == nullptr || inside.hoisted_.empty() || !inside.IsWorthTaking(rest) ||
        (is_rounded && !inside.IsInRange(rest, stage->tensor->dtype, axes)) ||
        (!is_rounded && e->op == Op::kCast)) {
      return e;
    }
    for (const auto& [op, factor] : inside.hoisted_) {
      hoisted_.emplace_back(op, Substitute(factor, stage->axes, load->args));
    }
    taken_apart_.insert(taken_apart_.end(), inside.taken_apart_.begin(), inside.taken_apart_.end());
    taken_apart_.push_back({load->buffer.get(), is_rounded ? rest : nullptr});
    return is_rounded ? e : Substitute(rest, stage->axes, load->args);
  }
  // Is it an element of an input, scaled, or made of a reduction's elements, as the weights of a
  // softmax of scores are, which kernels of both products take along? All else may be better
  // stored.
  bool IsWorthTaking(const Expr& rest) const {
    bool is_scaled = true;
    int values = 0;
    Visit(rest, [&](const Expr& e) {
      const bool is_scale = e->op == Op::kDiv && e->args[1]->op == Op::kFloat;
      is_scaled =
          is_scaled && (is_scale || e->op == Op::kLoad || e->op == Op::kCast || e->op == Op::kMul ||
                        e->op == Op::kNeg || e->op == Op::kFloat || !IsFloat(e->type));
      if (!IsValueLoad(e)) return;
      ++values;
      is_scaled = is_scaled && program_.FindStage(e->buffer.get()) == nullptr;
    });
    return (is_scaled && values == 1) || Origins(program_).AreReductions(rest, along_);
  }
  // Is what is left, rounded to `type`, as exact as it was with its factors? bfloat16 has the range
  // of float32; of float16 that is so of numbers of that type, and of a softmax's weights.
  bool IsInRange(const Expr& rest, DType type, const std::vector<Var>& axes) const {
    const Expr& value = WithoutCast(rest);
    if (type == DType::kBFloat16 || value->type == type) return true;
    return axes.size() == 1 && hoisted_.size() == 1 && hoisted_[0].first == Op::kDiv &&
           IsSoftmax(program_, rest, hoisted_[0].second, axes[0]);
  }
  int CountReads(const Buffer* tensor) const {
    int reads = 0;
    for (const Stage& s : program_.stages) {
      Visit(s.body, [&](const Expr& e) {
        reads += e->op == Op::kLoad && e->buffer.get() == tensor ? 1 : 0;
      });
    }
    return reads;
  }

  const TensorProgram& program_;
  const Variables along_;
  std::vector<std::pair<Op, Expr>> hoisted_;  // multiplied with, or divided by, in turn
  std::vector<TakenApart> taken_apart_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithHoistedFactors(
    const TensorProgram& program, const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& sum = program.stages[number];
  if (sum.combiner != Combiner::kSum) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is no sum"));
  }
  Variables reduced;
  for (const Var& axis : sum.reduce_axes) reduced.push_back(axis.get());
  Product product(program, std::move(reduced));
  const Expr rest = product.RestOf(sum.body);
  if (product.taken_apart().empty() || rest == nullptr || !ReadsSeveral(rest)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     " has no factor that a stage makes, whose own factors read a tensor and "
                     "mention no reduced axis, beside others that read several"));
  }
  Stage terms = sum;
  terms.is_output = false;
  terms.tensor =
      MakeBuffer(absl::StrCat(name, ".sum"), rest->type, Scope::kGlobal, sum.tensor->shape);
  // A stage's axes are its own.
  ExprList own;
  for (Var& axis : terms.axes) {
    axis = MakeVar(axis->name, axis->extent);
    own.push_back(VarExpr(axis));
  }
  terms.body = Substitute(rest, sum.axes, own);
  ExprList element;
  for (const Var& axis : sum.axes) element.push_back(VarExpr(axis));
  auto made = std::make_shared<TensorProgram>(program);
  Stage& result = made->stages[number];
  result.combiner = Combiner::kNone;
  result.reduce_axes.clear();
  result.body = product.Times(Load(terms.tensor, std::move(element)));
  made->stages.insert(made->stages.begin() + static_cast<std::ptrdiff_t>(number), std::move(terms));
  for (const Product::TakenApart& taken : product.taken_apart()) {
    const auto at = std::find_if(made->stages.begin(), made->stages.end(),
                                 [&](const Stage& s) { return s.tensor.get() == taken.stage; });
    if (taken.rounded != nullptr) {
      at->body = taken.rounded;
    } else {
      made->stages.erase(at);
    }
  }
  return made;
}

absl::Status HoistFactors::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithHoistedFactors);
}

}  // namespace heddle::search_space
