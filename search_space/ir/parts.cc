#include "search_space/ir/parts.h"

#include <algorithm>

#include "search_space/ir/narrow_expr.h"
#include "search_space/ir/simplify.h"

namespace heddle::search_space {
namespace {

// Factors of a product; of a quotient those of what is divided. False where what it is divided by
// is not the same in all terms.
bool AddFactors(const Expr& e, const Variables& reduced, std::vector<Expr>& factors) {
  if (e->op == Op::kMul) {
    return AddFactors(e->args[0], reduced, factors) && AddFactors(e->args[1], reduced, factors);
  }
  if (e->op == Op::kDiv) {
    return !MentionsAny(e->args[1], reduced) && AddFactors(e->args[0], reduced, factors);
  }
  factors.push_back(e);
  return true;
}

// What is left of a factor where it is not zero by a condition.
const Expr& WithoutConditions(const Expr& e) {
  if (e->op != Op::kSelect) return e;
  const Expr& otherwise = e->args[2];
  const bool is_zero = otherwise->op == Op::kFloat && otherwise->float_value == 0;
  return is_zero ? WithoutConditions(e->args[1]) : e;
}

}  // namespace

Expr PartOf(const Expr& part, const Expr& value) {
  const Expr rest = value - Cast(value->type, Cast(kPartType, value));
  return Select(MakeExpr(Op::kEq, {part, Int(0)}), value, rest);
}

Expr WholeOf(const Expr& e) {
  if (e->op != Op::kSelect || e->type != DType::kFloat32 || e->args[0]->op != Op::kEq) {
    return nullptr;
  }
  const Expr& whole = e->args[1];
  return StructurallyEqual(e, PartOf(e->args[0]->args[0], whole)) ? whole : nullptr;
}

Expr SplittableFactor(const TensorProgram& program, const Stage& sum) {
  if (sum.combiner != Combiner::kSum || sum.body->type != DType::kFloat32) return nullptr;
  Variables reduced;
  for (const Var& axis : sum.reduce_axes) reduced.push_back(axis.get());
  std::vector<Expr> factors;
  if (!AddFactors(sum.body, reduced, factors)) return nullptr;
  std::erase_if(factors, [&](const Expr& f) { return !MentionsAny(f, reduced); });
  if (factors.size() != 2) return nullptr;
  for (size_t f = 0; f < 2; ++f) {
    const Expr& load = WithoutConditions(factors[f]);
    if (load->op != Op::kLoad || load->type != DType::kFloat32) continue;
    const Expr other = AsNarrow(factors[1 - f]);
    const bool is_stage = program.FindStage(load->buffer.get()) != nullptr;
    if (is_stage && other != nullptr && other->type == kPartType) return load;
  }
  return nullptr;
}

int CountSplittable(const TensorProgram& program) {
  return static_cast<int>(std::count_if(
      program.stages.begin(), program.stages.end(),
      [&](const Stage& stage) { return SplittableFactor(program, stage) != nullptr; }));
}

}  // namespace heddle::search_space
