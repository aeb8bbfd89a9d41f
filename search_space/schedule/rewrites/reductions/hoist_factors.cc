#include "search_space/schedule/rewrites/reductions/hoist_factors.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/operands.h"
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

// Takes a product apart into what its terms have in common and the rest.
class Product {
 public:
  Product(const TensorProgram& program, const Stage& sum) : program_(program), sum_(sum) {
    for (const Var& axis : sum.reduce_axes) reduced_.push_back(axis.get());
  }

  // What is left of `e`, a factor, or where `under` is set a divisor; null: nothing is.
  Expr RestOf(const Expr& e, bool under = false) {
    if (!MentionsAny(e, reduced_)) {
      if (!ReadsValues(e)) return e;
      Expr& hoisted = under ? under_ : over_;
      hoisted = hoisted == nullptr ? e : hoisted * e;
      return nullptr;
    }
    if (e->op == Op::kLoad && !under) return RestOfStage(e);
    if (e->op != Op::kMul && e->op != Op::kDiv) return e;
    const bool divides = e->op == Op::kDiv;
    const Expr left = RestOf(e->args[0], under), right = RestOf(e->args[1], under != divides);
    if (left == e->args[0] && right == e->args[1]) return e;
    if (right == nullptr) return left;
    if (divides) return (left == nullptr ? Float(1, e->type) : left) / right;
    return left == nullptr ? right : left * right;
  }

  bool HasHoisted() const { return over_ != nullptr || under_ != nullptr; }
  Expr Times(const Expr& sum) const {
    const Expr product = over_ == nullptr ? sum : sum * over_;
    return under_ == nullptr ? product : product / under_;
  }
  // Elementwise stages of which the rest has what they were made of.
  const std::vector<const Buffer*>& replaced() const { return replaced_; }

 private:
  // Of the element of a stage, what is left of that which makes it, where something is hoisted.
  Expr RestOfStage(const Expr& load) {
    const Stage* stage = program_.FindStage(load->buffer.get());
    if (stage == nullptr || stage->is_reduction() || stage->is_output ||
        stage->tensor->dtype != stage->body->type || CountReads(load->buffer.get()) != 1) {
      return load;
    }
    Product inside(program_, sum_);
    const Expr rest = inside.RestOf(Substitute(stage->body, stage->axes, load->args));
    if (rest == nullptr || !inside.HasHoisted() || !IsWorthInlining(rest)) return load;
    if (inside.over_ != nullptr) over_ = over_ == nullptr ? inside.over_ : over_ * inside.over_;
    if (inside.under_ != nullptr) {
      under_ = under_ == nullptr ? inside.under_ : under_ * inside.under_;
    }
    replaced_.push_back(load->buffer.get());
    replaced_.insert(replaced_.end(), inside.replaced_.begin(), inside.replaced_.end());
    return rest;
  }
  // Is it an element of an input, scaled, or made of a reduction's elements, as the weights of a
  // softmax of scores are, which kernels of both products take along? All else may be better
  // stored.
  bool IsWorthInlining(const Expr& rest) const {
    bool is_scaled = true;
    int values = 0;
    Visit(rest, [&](const Expr& e) {
      is_scaled = is_scaled && (e->op == Op::kLoad || e->op == Op::kCast || e->op == Op::kMul ||
                                e->op == Op::kNeg || e->op == Op::kFloat || !IsFloat(e->type));
      if (!IsValueLoad(e)) return;
      ++values;
      is_scaled = is_scaled && program_.FindStage(e->buffer.get()) == nullptr;
    });
    return (is_scaled && values == 1) || IsMadeOfReduction(rest);
  }
  bool IsMadeOfReduction(const Expr& value) const {
    bool is_made = false;
    Visit(value, [&](const Expr& e) {
      const Stage* stage = IsValueLoad(e) ? program_.FindStage(e->buffer.get()) : nullptr;
      if (stage == nullptr || is_made || !MentionsAny(e, reduced_)) return;
      is_made =
          stage->is_reduction() || IsMadeOfReduction(Substitute(stage->body, stage->axes, e->args));
    });
    return is_made;
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
  const Stage& sum_;
  Variables reduced_;
  Expr over_, under_;  // null: none
  std::vector<const Buffer*> replaced_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithHoistedFactors(
    const TensorProgram& program, const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& sum = program.stages[number];
  if (sum.combiner != Combiner::kSum) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is no sum"));
  }
  Product product(program, sum);
  const Expr rest = product.RestOf(sum.body);
  if (!product.HasHoisted() || rest == nullptr || !ReadsSeveral(rest)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     " has no factor that reads a tensor and mentions no reduced axis, beside "
                     "others that read several"));
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
  std::erase_if(made->stages, [&](const Stage& s) {
    const auto& gone = product.replaced();
    return std::find(gone.begin(), gone.end(), s.tensor.get()) != gone.end();
  });
  return made;
}

absl::Status HoistFactors::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithHoistedFactors);
}

}  // namespace heddle::search_space
