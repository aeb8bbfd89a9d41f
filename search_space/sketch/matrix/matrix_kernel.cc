#include <algorithm>

#include "search_space/schedule/operands.h"
#include "search_space/sketch/matrix/matrix_plan.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kLine = 8;  // elements of 16 bytes, the widest access

// `operand` is factor of a product if it is made of 16-bit numbers, element by element.
bool MakeFactor(const TiledKernel& kernel, const MatrixShape& shape, const Operand& operand,
                const Expr& value, Factor& factor) {
  if (!shape.Takes(operand.dtype)) return false;
  const OperandTile& tile = operand.tiles.back();
  for (size_t d = 0; d < tile.dims.size(); ++d) {
    if (!tile.unit[d] || tile.dims[d].size() != 1) return false;
    factor.axes.push_back(tile.dims[d][0].axis);
  }
  factor.operand = operand;
  // Other loads may begin anywhere in a row.
  const bool is_plain = value->op == Op::kLoad && !operand.is_stage;
  while (is_plain && factor.vector < kLine && tile.row_extent % (2 * factor.vector) == 0) {
    factor.vector *= 2;
  }
  factor.is_copied = is_plain && factor.vector > 1 && kernel.target.has_async_copy;
  return true;
}

}  // namespace

std::optional<MatrixKernel> MatrixKernel::Find(const ProgramShape& program, const KernelShape& of,
                                               const Target& target,
                                               MatrixInstruction instruction) {
  const MatrixShape& shape = ShapeOf(instruction);
  const auto tiled = FindTiledKernel(program, of, target);
  if (!tiled.has_value() || !shape.IsOn(target)) return std::nullopt;
  const ScheduledStage& sum = program.stage(of.reductions[0]);
  const Operands operands = OperandsOf(sum);
  const bool is_product = sum.combiner == Combiner::kSum && operands.body->op == Op::kMul &&
                          sum.tensor->dtype == shape.result && tiled->operands.size() == 2 &&
                          tiled->held.empty() && tiled->results == 1 &&
                          tiled->reduce_axes.size() == 1;
  if (!is_product) return std::nullopt;
  MatrixKernel found{.kernel = *tiled};
  for (size_t i = 0; i < 2; ++i) {
    const Operand& operand = tiled->operands[i];
    const Expr& value = operands.list[operand.number];
    const Expr& side = operands.body->args[i];
    // Nothing is computed with a factor but its conversion.
    const bool is_bare = side->op == Op::kCast && StructurallyEqual(side->args[0], value);
    if (!is_bare || !MakeFactor(*tiled, shape, operand, value, found.factors[i])) {
      return std::nullopt;
    }
  }
  if (found.factors[0].operand.dtype != found.factors[1].operand.dtype) return std::nullopt;
  if (!found.ChooseAxes(0) || !found.ChooseAxes(1)) return std::nullopt;
  if (found.factors[0].own > found.factors[1].own) std::swap(found.factors[0], found.factors[1]);
  return found;
}

// The longest axis that only this factor has; each element of the others is a block's.
bool MatrixKernel::ChooseAxes(size_t factor) {
  const std::vector<size_t>& other = factors[1 - factor].axes;
  int64_t longest = 0;
  for (size_t axis : factors[factor].axes) {
    if (axis >= kernel.axes.size()) continue;
    if (std::find(other.begin(), other.end(), axis) != other.end()) continue;
    if (kernel.axes[axis].extent <= longest) continue;
    longest = kernel.axes[axis].extent;
    factors[factor].own = axis;
  }
  return longest > 0;
}

}  // namespace heddle::search_space
