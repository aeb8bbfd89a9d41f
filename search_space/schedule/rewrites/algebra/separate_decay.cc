#include "search_space/schedule/rewrites/algebra/separate_decay.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

constexpr double kMostInteger = 1 << 24;  // that float32 has, with all below

// A weight is base^exponent.
struct Power {
  Expr base;  // null: of exp
  double log_base;
  Linear exponent;
};

std::optional<double> Number(const Expr& e) {
  if (e->op == Op::kFloat) return e->float_value;
  if (e->op != Op::kNeg) return std::nullopt;
  const auto of = Number(e->args[0]);
  return of.has_value() ? std::optional(-*of) : std::nullopt;
}

// What a float is that is made of integers alone, which are exact.
std::optional<Linear> IntegerOf(const Expr& e) {
  if (e->op == Op::kCast && e->args[0]->type == DType::kInt64) return ToLinear(e->args[0]);
  if (e->op == Op::kFloat && std::rint(e->float_value) == e->float_value &&
      std::abs(e->float_value) < kMostInteger) {
    return ToLinear(Int(static_cast<int64_t>(e->float_value)));
  }
  if (e->op == Op::kNeg) {
    const auto of = IntegerOf(e->args[0]);
    return of.has_value() ? std::optional(Add(Linear{}, *of, -1)) : std::nullopt;
  }
  if (e->op != Op::kAdd && e->op != Op::kSub && e->op != Op::kMul) return std::nullopt;
  const auto left = IntegerOf(e->args[0]), right = IntegerOf(e->args[1]);
  if (!left.has_value() || !right.has_value()) return std::nullopt;
  if (e->op == Op::kMul) {
    const bool is_first = left->terms.empty();
    if (!is_first && !right->terms.empty()) return std::nullopt;
    return Add(Linear{}, is_first ? *right : *left, (is_first ? *left : *right).constant);
  }
  return Add(*left, *right, e->op == Op::kAdd ? 1 : -1);
}

// pow(c, n) and exp(a * n) of an integer n.
std::optional<Power> PowerOf(const Expr& factor) {
  if (factor->op == Op::kPow) {
    const auto base = Number(factor->args[0]);
    const auto exponent = IntegerOf(factor->args[1]);
    if (!base.has_value() || *base <= 0 || !exponent.has_value()) return std::nullopt;
    return Power{factor->args[0], std::log(*base), *exponent};
  }
  if (factor->op != Op::kExp) return std::nullopt;
  double scale = 1;
  Expr of = factor->args[0];
  for (auto integer = IntegerOf(of);; integer = IntegerOf(of)) {
    if (integer.has_value()) return Power{nullptr, scale, *integer};
    if (of->op == Op::kNeg) {
      scale = -scale;
      of = of->args[0];
    } else if (of->op == Op::kMul && Number(of->args[0]).has_value()) {
      scale *= *Number(of->args[0]);
      of = of->args[1];
    } else if ((of->op == Op::kMul || of->op == Op::kDiv) && Number(of->args[1]).has_value()) {
      const double number = *Number(of->args[1]);
      scale *= of->op == Op::kMul ? number : 1 / number;
      of = of->args[0];
    } else {
      return std::nullopt;
    }
  }
}

// A product that is zero where a condition does not hold, by its factors.
class DecayedProduct {
 public:
  explicit DecayedProduct(const TensorProgram& program) : program_(program) {}

  void Add(const Expr& e) {
    if (e->op == Op::kMul) {
      for (const Expr& factor : e->args) Add(factor);
    } else if (e->op == Op::kSelect && e->args[2]->op == Op::kFloat &&
               e->args[2]->float_value == 0) {
      conditions = AndAlso(conditions, e->args[0]);
      Add(e->args[1]);
    } else if (const Expr weight = WeightOf(e)) {
      Add(weight);
    } else {
      factors.push_back(e);
    }
  }

  Expr conditions;
  std::vector<Expr> factors;

 private:
  // What an element of a stage that reads no tensor is.
  Expr WeightOf(const Expr& load) const {
    const Stage* read = load->op == Op::kLoad ? program_.FindStage(load->buffer.get()) : nullptr;
    if (read == nullptr || read->is_reduction() || !LoadsIn(read->body).empty() ||
        ReadsIndices(read->body) || read->tensor->dtype != read->body->type) {
      return nullptr;
    }
    return Substitute(read->body, read->axes, load->args);
  }

  const TensorProgram& program_;
};

// What is left behind so many times the distance. A base stays the number that it is: rounded anew
// it would be off by the exponent times that.
Expr Decay(const Power& power, int64_t times, const Expr& distance, DType type) {
  const Expr exponent = Cast(type, Simplify(distance * Int(times)));
  if (power.base != nullptr) return MakeExpr(Op::kPow, {power.base, exponent});
  return MakeExpr(Op::kExp, {Float(power.log_base, type) * exponent});
}

// The sum of prefixes and, in the place of the stage, what it decays to.
struct Separated {
  Stage scan, result;
};

// With factor `number` of the product for the weight.
std::optional<Separated> Separate(const Stage& stage, const DecayedProduct& product,
                                  size_t number) {
  const std::optional<Power> power = PowerOf(product.factors[number]);
  if (!power.has_value() || power->exponent.terms.size() != 2) return std::nullopt;
  const DType type = stage.body->type;
  Separated made{stage, stage};
  made.scan.is_output = false;
  made.scan.tensor =
      MakeBuffer(absl::StrCat(stage.name(), ".scan"), type, Scope::kGlobal, stage.tensor->shape);
  for (const size_t first : {0, 1}) {
    const Term &to = power->exponent.terms[first], &from = power->exponent.terms[1 - first];
    const auto is = [](const Term& t, const std::vector<Var>& axes) {
      return t.x->op == Op::kVar && t.div == 1 && t.mod == 0 &&
             std::find(axes.begin(), axes.end(), t.x->var) != axes.end();
    };
    if (!is(to, stage.axes) || !is(from, stage.reduce_axes) || to.coef != -from.coef) continue;
    const int64_t extent = to.x->var->extent;
    const Expr middle = Int(extent / 2);
    const double reach = std::abs(power->log_base) *
                         (static_cast<double>(std::abs(to.coef)) * static_cast<double>(extent) / 2 +
                          static_cast<double>(std::abs(power->exponent.constant)));
    if (!(reach < std::log(kMostDecay))) return std::nullopt;
    Expr term = Decay(*power, to.coef, middle - from.x, type);
    if (power->exponent.constant != 0) {
      const double whole = power->log_base * static_cast<double>(power->exponent.constant);
      term = term * Float(std::exp(whole), type);
    }
    for (size_t i = 0; i < product.factors.size(); ++i) {
      if (i != number) term = product.factors[i] * term;
    }
    made.scan.body = Simplify(Select(product.conditions, term, Float(0, type)));
    const std::optional<Scan> scan = ScanOf(MakeScheduledStage(made.scan));
    const bool is_same = scan.has_value() && stage.axes[scan->axis] == to.x->var &&
                         stage.reduce_axes[scan->reduced] == from.x->var;
    if (!is_same) return std::nullopt;
    ExprList own;
    for (const Var& axis : stage.axes) own.push_back(VarExpr(axis));
    made.result.combiner = Combiner::kNone;
    made.result.reduce_axes.clear();
    made.result.body =
        Load(made.scan.tensor, std::move(own)) * Decay(*power, to.coef, to.x - middle, type);
    return made;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSeparateDecay(const TensorProgram& program,
                                                                       const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& stage = program.stages[number];
  DecayedProduct product(program);
  if (stage.combiner == Combiner::kSum) product.Add(stage.body);
  for (size_t i = 0; product.conditions != nullptr && i < product.factors.size(); ++i) {
    std::optional<Separated> made = Separate(stage, product, i);
    if (!made.has_value()) continue;
    // A stage's axes are its own.
    for (auto* axes : {&made->scan.axes, &made->scan.reduce_axes}) {
      for (Var& axis : *axes) {
        const Var before = std::exchange(axis, MakeVar(axis->name, axis->extent));
        made->scan.body = Substitute(made->scan.body, [&](const Var& v) -> Expr {
          return v == before ? VarExpr(axis) : nullptr;
        });
      }
    }
    auto changed = std::make_shared<TensorProgram>(program);
    const auto at = changed->stages.begin() + static_cast<std::ptrdiff_t>(number);
    *at = std::move(made->result);
    changed->stages.insert(at, std::move(made->scan));
    return changed;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name,
                   " is no sum of select(r <= j, e * pow(c, j - r), 0) of an axis j, which e "
                   "does not mention, and a reduced axis r as long, with weights up to ",
                   kMostDecay));
}

absl::Status SeparateDecay::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithSeparateDecay);
}

}  // namespace heddle::search_space
