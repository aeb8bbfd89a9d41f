#include "search_space/schedule/rewrites/reductions/hoist_factors.h"

#include <algorithm>
#include <cstddef>
#include <map>
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
    std::vector<bool> depends;
    Variables axes;
    for (size_t d = 0; d < load->args.size(); ++d) {
      depends.push_back(MentionsAny(load->args[d], along));
      if (stage != nullptr && depends.back()) axes.push_back(stage->axes[d].get());
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
      hoisted_.emplace_back(under ? Op::kDiv : Op::kMul, e);
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

  // One after another: what several make may be out of range.
  Expr Times(Expr sum) const {
    for (const auto& [op, factor] : hoisted_) sum = op == Op::kMul ? sum * factor : sum / factor;
    return sum;
  }
  // Elementwise stages of which the rest has what they were made of.
  const std::vector<const Buffer*>& replaced() const { return replaced_; }

 private:
  // Of the element of a stage, what is left of that which makes it, where something is hoisted.
  Expr RestOfStage(const Expr& load) {
    const Stage* stage = program_.FindStage(load->buffer.get());
    if (stage == nullptr || stage->is_reduction() || stage->is_output ||
        CountReads(load->buffer.get()) != 1) {
      return load;
    }
    Product inside(program_, sum_);
    const Expr rest = inside.RestOf(Substitute(stage->body, stage->axes, load->args));
    if (rest == nullptr || inside.hoisted_.empty() || !IsWorthInlining(rest)) return load;
    hoisted_.insert(hoisted_.end(), inside.hoisted_.begin(), inside.hoisted_.end());
    replaced_.push_back(load->buffer.get());
    replaced_.insert(replaced_.end(), inside.replaced_.begin(), inside.replaced_.end());
    return rest;
  }
  // Is it an element of an input, scaled, or made of a reduction's elements, as the weights of a
  // softmax of scores are, which kernels of both products take along? All else may be better
  // stored.
  bool IsWorthInlining(const Expr& rest) {
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
    return (is_scaled && values == 1) || Origins(program_).AreReductions(rest, reduced_);
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
  std::vector<std::pair<Op, Expr>> hoisted_;  // multiplied with, or divided by, in turn
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
  if (product.replaced().empty() || rest == nullptr || !ReadsSeveral(rest)) {
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
