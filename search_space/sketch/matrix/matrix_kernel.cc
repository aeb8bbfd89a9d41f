#include "search_space/sketch/matrix/matrix_kernel.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "base/math.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/expr/uniform.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/analysis/tails.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kFilled = 16;  // elements that fill a matrix along the result
// Neighbours in memory with which lines of it are written whole by a tile, whatever its width.
constexpr int64_t kWholeLines = 64;
// Of a tile that products of large matrices have.
constexpr int64_t kUsualRows = 128, kUsualDepth = 64;

// `operand` is factor of a product if it is made of numbers that are multiplied, element by
// element.
bool MakeFactor(const ScheduledStage& sum, const MatrixShape& shape, const Operand& operand,
                const Expr& value, Factor& factor) {
  if (!shape.Takes(operand.dtype)) return false;
  factor.operand = operand;
  factor.axes = AxesInMemoryOrder(sum, value);
  return true;
}

// What is computed where the factor is fetched: the stages that it reads are inlined there.
Expr WithInlined(const Schedule& schedule, const Operand& operand, const Expr& value) {
  return Rewrite(value, [&](const Expr& node) -> Expr {
    const auto is_inlined = [&](const BufferRef& stage) { return node->buffer == stage; };
    if (node->op != Op::kLoad ||
        std::none_of(operand.inlined.begin(), operand.inlined.end(), is_inlined)) {
      return nullptr;
    }
    const int at = schedule.FindStage(node->buffer.get());
    const ScheduledStage& stage = schedule.stage(at);
    return Substitute(stage.body, stage.axes, node->args);
  });
}

// Is the condition one for all of `vector` neighbours along the axis that are copied at a time?
bool IsOfWhole(const Expr& condition, const Var& axis, int64_t vector) {
  const Var group = MakeVar(axis->name, CeilDiv(axis->extent, vector));
  const Var lane = MakeVar("lane", vector);
  const Expr at = VarExpr(group) * Int(vector) + VarExpr(lane);
  return IsUniform(Substitute(condition, {axis}, {at}), lane);
}

// Can asynchronous copies bring it, so many neighbours along the axis at a time? They bring
// elements of a tensor, zeros where a condition says so, and elements of that of several tensors
// which conditions choose: always for all of these neighbours alike.
bool IsCopy(const Expr& value, const Var& axis, int64_t vector) {
  if (value->op != Op::kSelect) return value->op == Op::kLoad;
  const Expr& condition = value->args[0];
  if (!IsCopy(value->args[1], axis, vector)) return false;
  if (IsGuarded(value)) return !MentionsAny(condition, {axis.get()});
  return IsCopy(value->args[2], axis, vector) && IsOfWhole(condition, axis, vector);
}

// So many elements that an axis numbers one after another begin at a multiple of this in memory; 1
// where it does not number neighbours. By a remainder it numbers runs of them.
int64_t AlignmentAlong(const Expr& load, const Var& axis) {
  const Linear last = ToLinear(load->args.back());
  const bool is_alone = last.terms.size() == 1 && last.constant == 0;
  int64_t alignment = std::gcd(load->buffer->shape.back(), last.constant);
  if (!is_alone) alignment = std::gcd(alignment, axis->extent);
  bool is_row = false;
  for (const Term& t : last.terms) {
    if (!MentionsAny(t.x, {axis.get()})) {
      alignment = std::gcd(alignment, t.coef);
    } else {
      if (is_row || t.coef != 1 || t.div != 1 || t.x->op != Op::kVar) return 1;
      alignment = std::gcd(alignment, t.mod);
      is_row = true;
    }
  }
  return is_row ? alignment : 1;
}

// select(a < 1, U[x], V[x]) and so on, of tensors of which one is as the other: is each of these a
// box, and `a` an axis along which no tile lies?
bool IsChosenByPlace(const Expr& value, const Var& own, const Var& along,
                     absl::FunctionRef<bool(const Expr&)> is_box) {
  if (value->op != Op::kSelect) return is_box(value);
  const Expr &condition = value->args[0], &first = value->args[1];
  const bool is_place = condition->op == Op::kLt && condition->args[0]->op == Op::kVar &&
                        condition->args[0]->var != own && condition->args[0]->var != along &&
                        condition->args[0]->var->extent <= kMostPartsRead &&
                        condition->args[1]->op == Op::kInt;
  return is_place && first->op == Op::kLoad && is_box(first) &&
         IsChosenByPlace(value->args[2], own, along, is_box);
}

}  // namespace

void MatrixKernel::ChooseShared(int64_t step) {
  const auto parts_along = [&](size_t r) {
    const int64_t extent = kernel.reduce_axes[r].extent;
    return r == depth ? CeilDiv(extent, step) : extent;
  };
  shared_axis = depth;
  for (size_t r = 0; r < kernel.reduce_axes.size(); ++r) {
    const size_t axis = kernel.axes.size() + r;
    const bool is_of_both = factors[0].Has(axis) && factors[1].Has(axis);
    if (is_of_both && parts_along(r) > parts_along(shared_axis)) shared_axis = r;
  }
}

std::optional<MatrixKernel> MatrixKernel::Find(const ProgramShape& program, const KernelShape& of,
                                               const Target& target, bool in_warpgroups) {
  const auto tiled = FindTiledKernel(program, of, target, true);
  if (!tiled.has_value() || tiled->operands.empty()) return std::nullopt;
  const DType type = tiled->operands[0].dtype;
  if (!IsNarrow(type)) return std::nullopt;
  const MatrixShape& shape =
      ShapeOf(in_warpgroups ? WarpgroupInstructions(type)[0] : WarpInstruction(type));
  if (!shape.IsOn(target)) return std::nullopt;
  const ScheduledStage& sum = program.stage(of.reductions[0]);
  const Operands operands = OperandsOf(sum);
  const bool is_product = sum.combiner == Combiner::kSum && operands.body->op == Op::kMul &&
                          sum.tensor->dtype == shape.result && tiled->operands.size() == 2 &&
                          tiled->held.empty() && tiled->results == 1;
  if (!is_product) return std::nullopt;
  MatrixKernel found{.kernel = *tiled};
  for (size_t i = 0; i < 2; ++i) {
    const Operand& operand = tiled->operands[i];
    const Expr& value = operands.list[operand.number];
    const Expr& side = operands.body->args[i];
    // Nothing is computed with a factor but its conversion.
    const bool is_bare = side->op == Op::kCast && StructurallyEqual(side->args[0], value);
    if (!is_bare || !MakeFactor(sum, shape, operand, value, found.factors[i])) return std::nullopt;
  }
  if (found.factors[0].operand.dtype != found.factors[1].operand.dtype) return std::nullopt;
  found.FindParts(program, sum, operands);
  const auto value_of = [&](const Factor& f) { return operands.list[f.operand.number]; };
  const auto vanishes = [&](size_t r) {
    return std::all_of(std::begin(found.factors), std::end(found.factors), [&](const Factor& f) {
      return IsZeroOutside(program.schedule, value_of(f), sum.reduce_axes[r], false);
    });
  };
  if (!found.ChooseDepth(shape.k, vanishes)) return std::nullopt;
  found.ChooseShared(shape.k);
  if (!found.ChooseOwn(0) || !found.ChooseOwn(1)) return std::nullopt;
  for (Factor& factor : found.factors) found.ChooseAccess(program, sum, value_of(factor), factor);
  // From shared memory elements of 16 bits alone are transposed.
  const bool along_depth = found.IsAlongDepth(0) && found.IsAlongDepth(1);
  if (in_warpgroups && !IsHalf(type) && !along_depth) return std::nullopt;
  if (found.factors[0].own > found.factors[1].own) std::swap(found.factors[0], found.factors[1]);
  const ScheduledStage& root = program.stage(of.root);
  found.may_stage = found.ResultInner().has_value() && !program.schedule.HasCompanions(root);
  return found;
}

// Of parts, the axis of these is the first of the tensor, and no axis of the other factor.
void MatrixKernel::FindParts(const ProgramShape& program, const ScheduledStage& sum,
                             const Operands& operands) {
  for (size_t i = 0; i < 2; ++i) {
    const Expr& value = operands.list[factors[i].operand.number];
    const int stage = value->op == Op::kLoad ? program.schedule.FindStage(value->buffer.get()) : -1;
    if (stage < 0 || !IsOfParts(program.stage(stage)) || value->args[0]->op != Op::kVar) continue;
    for (size_t r = 0; r < sum.reduce_axes.size(); ++r) {
      const bool is_alone = !factors[1 - i].Has(sum.axes.size() + r);
      if (value->args[0]->var == sum.reduce_axes[r] && is_alone) factors[i].parts = r;
    }
  }
}

std::optional<size_t> MatrixKernel::ResultInner() const {
  size_t last = kernel.axes.size() - 1;
  if (places == last) --last;
  for (size_t i = 0; i < 2; ++i) {
    if (factors[i].own == last) return i;
  }
  return std::nullopt;
}

DType MatrixKernel::ResultType(bool is_part) const {
  return (is_part ? kernel.reduction : kernel.root).tensor->dtype;
}

// Of the reduction axes that both factors have, the one that lies innermost in most of them, of
// these the longest. Beside others it must fill half a step at least, and whole ones where the
// factors do not vanish past its end.
bool MatrixKernel::ChooseDepth(int64_t step, const std::function<bool(size_t)>& is_zero_past) {
  std::pair<int, int64_t> best{-1, 0};
  for (size_t r = 0; r < kernel.reduce_axes.size(); ++r) {
    const size_t axis = kernel.axes.size() + r;
    const int64_t extent = kernel.reduce_axes[r].extent;
    if (!factors[0].Has(axis) || !factors[1].Has(axis)) continue;
    if (kernel.reduce_axes.size() > 1 && 2 * extent < step) continue;
    const bool is_zero = is_zero_past(r);
    if (!is_zero && extent % step != 0) continue;
    int innermost = 0;
    for (const Factor& factor : factors) innermost += factor.axes.back() == axis ? 1 : 0;
    if (std::pair(innermost, extent) <= best) continue;
    best = {innermost, extent};
    depth = r;
    vanishes = is_zero;
  }
  return best.first >= 0;
}

// The longest axis that only this factor has, or the innermost one where that fills a matrix, or
// the one along which the result's rows lie in memory where these are long; each element of the
// others is a block's.
bool MatrixKernel::ChooseOwn(size_t number) {
  Factor& factor = factors[number];
  std::tuple<bool, bool, int64_t> best{false, false, 0};
  for (size_t x = factor.axes.size(); x-- > 0;) {
    const size_t axis = factor.axes[x];
    if (axis >= kernel.axes.size() || factors[1 - number].Has(axis)) continue;
    const int64_t extent = kernel.axes[axis].extent;
    // Behind it lie only axes that are walked.
    const bool is_inner = std::all_of(
        factor.axes.begin() + static_cast<std::ptrdiff_t>(x) + 1, factor.axes.end(),
        [&](size_t behind) { return behind >= kernel.axes.size() && behind != DepthAxis(); });
    const bool fills = is_inner && kernel.reduce_axes.size() > 1 && extent >= kFilled;
    const bool is_row = axis + 1 == kernel.axes.size() && extent >= kWholeLines;
    if (std::tuple(fills, is_row, extent) <= best) continue;
    best = {fills, is_row, extent};
    factor.own = axis;
  }
  return std::get<2>(best) > 0;
}

// Accesses are as wide as rows are aligned, where the innermost axis alone numbers the elements of
// a row: those of a window may begin anywhere. Of a factor that is computed from several tensors,
// as wide as all of them allow that have rows along that axis.
void MatrixKernel::ChooseAccess(const ProgramShape& program, const ScheduledStage& sum,
                                const Expr& value, Factor& factor) const {
  const auto is_tiled = [&](size_t axis) { return axis == factor.own || axis == DepthAxis(); };
  factor.inner = *std::find_if(factor.axes.rbegin(), factor.axes.rend(), is_tiled);
  const auto is_inner = [&](size_t d) { return factor.axes[d] == factor.inner; };
  factor.layout.resize(factor.axes.size());
  std::iota(factor.layout.begin(), factor.layout.end(), size_t{0});
  std::stable_partition(factor.layout.begin(), factor.layout.end(), std::not_fn(is_inner));
  if (factor.axes.back() != factor.inner) return;
  const Var& axis = factor.inner < kernel.axes.size()
                        ? sum.axes[factor.inner]
                        : sum.reduce_axes[factor.inner - kernel.axes.size()];
  int64_t widest = 0;
  const Expr computed = WithInlined(program.schedule, factor.operand, value);
  for (const Expr& load : LoadsIn(computed)) {
    if (!MentionsAny(load, {axis.get()})) continue;
    widest = std::gcd(widest, AlignmentAlong(load, axis));
  }
  while (factor.vector < ElementsOfAccess(factor.operand.dtype) &&
         widest % (2 * factor.vector) == 0)
    factor.vector *= 2;
  factor.is_copied =
      IsCopy(computed, axis, factor.vector) && factor.vector > 1 && kernel.target.has_async_copy;
  ChooseBoxes(sum, value, factor);
}

// A box is a tensor's elements at all places of a tile's axes, each of which is an index by itself,
// and at one place of all else that indices mention. The tensor may be one of two that follow one
// another along an axis.
void MatrixKernel::ChooseBoxes(const ScheduledStage& sum, const Expr& value, Factor& factor) const {
  if (factor.operand.is_stage || !factor.operand.inlined.empty() || !HasBulkCopies(kernel.target)) {
    return;
  }
  std::vector<Var> axes = sum.axes;
  axes.insert(axes.end(), sum.reduce_axes.begin(), sum.reduce_axes.end());
  const Var &own = axes[factor.own], &along = axes[DepthAxis()];
  const auto is_var = [](const Expr& index) { return index->op == Op::kVar; };
  const auto is_box = [&](const Expr& load) {
    if (load == nullptr || !IsBulkCopied(*load->buffer)) return false;
    if (!is_var(load->args.back()) || load->args.back()->var != axes[factor.inner]) return false;
    absl::flat_hash_set<const Variable*> numbered;
    return std::all_of(load->args.begin(), load->args.end(), [&](const Expr& index) {
      return is_var(index) ? numbered.insert(index->var.get()).second
                           : !MentionsAny(index, {own.get(), along.get()});
    });
  };
  const Expr whole = BulkLoadOf(value);
  factor.is_boxed = is_box(whole);
  const auto is_computed = [&](const Expr& index) {
    return !is_var(index) && index->op != Op::kInt;
  };
  factor.has_computed_index =
      factor.is_boxed && std::any_of(whole->args.begin(), whole->args.end(), is_computed);
  if (value->op != Op::kSelect || whole != nullptr) return;
  if (IsChosenByPlace(value, own, along, is_box)) {
    factor.is_boxed = true;
    return;
  }
  // select(r < at, A[.., r, ..], B[.., r - at, ..])
  const Expr &condition = value->args[0], &first = value->args[1], &second = value->args[2];
  const bool is_end = condition->op == Op::kLt && is_var(condition->args[0]) &&
                      condition->args[1]->op == Op::kInt && first->op == Op::kLoad &&
                      second->op == Op::kLoad && first->args.size() == second->args.size();
  if (!is_end || !is_box(first) || !IsBulkCopied(*second->buffer) ||
      !std::all_of(first->args.begin(), first->args.end(), is_var)) {
    return;
  }
  const Expr& axis = condition->args[0];
  const int64_t at = condition->args[1]->int_value;
  for (size_t d = 0; d < first->args.size(); ++d) {
    const bool is_seam = StructurallyEqual(first->args[d], axis);
    const Expr there = is_seam ? Simplify(axis - Int(at)) : first->args[d];
    if (!StructurallyEqual(Simplify(second->args[d]), there)) return;
  }
  const auto seam =
      static_cast<size_t>(std::find(axes.begin(), axes.end(), axis->var) - axes.begin());
  // Where few tiles end there, a copy of both (packing.h) is worth more.
  if (at % (seam == factor.own ? kUsualRows : kUsualDepth) != 0) return;
  factor.is_boxed = true;
  factor.seam = {seam, at};
}

}  // namespace heddle::search_space
