#include "search_space/ir/parts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "search_space/ir/expr/narrow_expr.h"
#include "search_space/ir/expr/simplify.h"

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

// The load of the only element that `e` is a function of; null where there is none.
Expr OnlyElementIn(const Expr& e) {
  Expr only;
  bool is_function = true;
  const std::function<void(const Expr&)> look = [&](const Expr& node) {
    if (IsValueLoad(node)) {
      if (only == nullptr) only = node;
      is_function = is_function && StructurallyEqual(only, node);
      return;
    }
    is_function = is_function && node->op != Op::kVar && node->op != Op::kLoad;
    for (const Expr& arg : node->args) look(arg);
  };
  look(e);
  return is_function ? only : nullptr;
}

Expr ProductOf(const std::vector<Expr>& factors) {
  Expr product = factors[0];
  for (size_t f = 1; f < factors.size(); ++f) product = product * factors[f];
  return product;
}

// Of one part, over the sum's axes that `value` mentions.
double ElementsAlongAxes(const Stage& sum, const Expr& value) {
  double elements = 1;
  for (const auto* axes : {&sum.axes, &sum.reduce_axes}) {
    for (const Var& axis : *axes) {
      if (MentionsAny(value, {axis.get()})) elements *= static_cast<double>(axis->extent);
    }
  }
  return elements;
}

bool IsStage(const TensorProgram& program, const Expr& value) {
  return value->op == Op::kLoad && program.FindStage(value->buffer.get()) != nullptr;
}

// The value that the factors make; nullopt where it is not of float32, reads no values, or two of
// the factors are one node.
std::optional<SplittableFactor> Split(const TensorProgram& program, const Stage& sum,
                                      const std::vector<Expr>& factors) {
  SplittableFactor split;
  for (const Expr& factor : factors) split.factors.push_back(WithoutConditions(factor));
  split.value = ProductOf(split.factors);
  split.load = OnlyElementIn(split.value);
  // Of a longer tensor those alone that the sum reads.
  const bool reads_few = split.load != nullptr && !IsStage(program, split.value) &&
                         ElementsAlongAxes(sum, ProductOf(factors)) <
                             static_cast<double>(split.load->buffer->elements);
  // Elements that a condition protects are read under it.
  if (split.load == nullptr || reads_few) split = {.factors = factors, .value = ProductOf(factors)};
  absl::flat_hash_set<const ExprNode*> nodes;  // what is rewritten must stand in one place each
  for (const Expr& factor : split.factors) nodes.insert(factor.get());
  if (nodes.size() < split.factors.size()) return std::nullopt;
  bool reads = false;
  Visit(split.value, [&](const Expr& e) { reads = reads || IsValueLoad(e); });
  if (!reads || split.value->type != DType::kFloat32) return std::nullopt;
  return split;
}

// Has each of the two a data axis of its own, of more than one element?
bool IsMatrixProduct(const Stage& sum, const Expr& a, const Expr& b) {
  bool only_a = false, only_b = false;
  for (const Var& axis : sum.axes) {
    if (axis->extent == 1) continue;
    const bool in_a = MentionsAny(a, {axis.get()}), in_b = MentionsAny(b, {axis.get()});
    only_a = only_a || (in_a && !in_b);
    only_b = only_b || (in_b && !in_a);
  }
  return only_a && only_b;
}

// Of one part.
double Elements(const Stage& sum, const SplittableFactor& split) {
  return split.load != nullptr ? static_cast<double>(split.load->buffer->elements)
                               : ElementsAlongAxes(sum, split.value);
}

// A part may have twice the elements of the longest of a program's tensors.
double MostElements(const TensorProgram& program) {
  int64_t most = 0;
  for (const BufferRef& input : program.inputs) most = std::max(most, input->elements);
  for (const Stage& stage : program.stages) {
    // What others were split into does not count, so that the order does not matter.
    if (WholeOf(stage.body) == nullptr) most = std::max(most, stage.tensor->elements);
  }
  return 2 * static_cast<double>(most);
}

// Each is looked at beside all others, of operators that anybody may have written.
constexpr size_t kMostFactors = 8;

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

std::optional<SplittableFactor> FindSplittable(const TensorProgram& program, const Stage& sum) {
  if (sum.combiner != Combiner::kSum || sum.body->type != DType::kFloat32) return std::nullopt;
  Variables reduced;
  for (const Var& axis : sum.reduce_axes) reduced.push_back(axis.get());
  std::vector<Expr> factors;
  if (!AddFactors(sum.body, reduced, factors)) return std::nullopt;
  std::erase_if(factors, [&](const Expr& f) { return !MentionsAny(f, reduced); });
  if (factors.size() < 2 || factors.size() > kMostFactors) return std::nullopt;
  std::optional<SplittableFactor> best;
  double fewest = MostElements(program);
  for (size_t narrow = 0; narrow < factors.size(); ++narrow) {
    const Expr other = AsNarrow(factors[narrow]);
    if (other == nullptr || other->type != kPartType) continue;
    std::vector<Expr> rest = factors;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(narrow));
    std::optional<SplittableFactor> found = Split(program, sum, rest);
    if (!found) continue;
    if (IsStage(program, found->value)) return found;
    if (AsNarrow(found->value) != nullptr || !IsMatrixProduct(sum, found->value, other)) continue;
    const double elements = Elements(sum, *found);
    if (elements > fewest) continue;  // of as many those of the factors that stand first
    fewest = elements;
    best = std::move(found);
  }
  return best;
}

int CountSplittable(const TensorProgram& program) {
  return static_cast<int>(std::count_if(
      program.stages.begin(), program.stages.end(),
      [&](const Stage& stage) { return FindSplittable(program, stage).has_value(); }));
}

}  // namespace heddle::search_space
