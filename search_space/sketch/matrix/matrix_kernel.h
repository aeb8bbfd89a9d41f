// Kernels that are products of matrices of narrow numbers: which those are, and along which axes
// matrices are multiplied.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_KERNEL_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_KERNEL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "search_space/schedule/analysis/operands.h"
#include "search_space/sketch/matrix/factor.h"
#include "search_space/sketch/tiling/tiled_kernel.h"

namespace heddle::search_space {

// Reductions of rows of a product's tiles, each over the `columns` that one warp, or warpgroup, has
// of a row. The root stores these alone (reduce_in_parts.h), along an axis that numbers
// the reductions and one that numbers the parts of a row, behind the product's other axes; or,
// where rows are whole, what it makes of them and of the product's elements.
struct RowParts {
  std::vector<StageRef> reductions;  // in definition order
  size_t rows = 0;                   // the factor with the rows
  size_t along = 0;                  // the product's axis of the columns
  int64_t columns = 0;
  bool are_whole = false;
};

// A kernel that is such a product.
struct MatrixKernel {
  TiledKernel kernel;
  std::array<Factor, 2> factors;  // in the order of the axes that they bring to the result
  // The reduction axis along which matrices are multiplied. The others, such as the taps of a
  // convolution, are walked one element after another.
  size_t depth = 0;
  // The reduction axis that blocks may share: that of most parts, which of the one above are tiles.
  size_t shared_axis = 0;
  // Do the factors vanish past its end, so that it may end inside a tile?
  bool vanishes = true;
  // Is there one result, whose elements lie closest along an axis of a factor?
  bool may_stage = false;
  // What is stored in the place of the product's elements, if they are not: reductions of rows and
  // what is made with them, or what is made of all elements along an axis that only one factor has,
  // such as those of a gate and of what it opens. The stages between are inlined.
  std::optional<RowParts> row_parts;
  std::optional<size_t> places;
  // Has what is stored that axis, too, as the halves of a rotary embedding? A thread stores the
  // elements at all places then.
  bool stores_places = false;
  // What is stored in their place are reductions of the product's elements over an axis that no
  // tile has, such as a sum over the heads of what their scores give: that stage, and the axis.
  std::optional<StageRef> reduced;
  std::optional<size_t> over;
  std::vector<BufferRef> inlined;

  // nullopt unless instructions of warps, or of warpgroups, can compute it on `target`.
  static std::optional<MatrixKernel> Find(const ProgramShape& shape, const KernelShape& of,
                                          const Target& target, bool in_warpgroups);
  // The same of a kernel with nothing inlined that stores something else than elements.
  static std::optional<MatrixKernel> FindFused(const ProgramShape& shape, const KernelShape& kernel,
                                               const Target& target, bool in_warpgroups);

  DType Type() const { return factors[0].operand.dtype; }  // of both
  int64_t Extent(size_t factor) const { return kernel.axes[factors[factor].own].extent; }
  bool StoresElements() const {
    return !row_parts.has_value() && !places.has_value() && !over.has_value();
  }
  bool StoresRowParts() const { return row_parts.has_value() && !row_parts->are_whole; }
  // Elements of the product for each that a thread stores.
  bool HasPlaces(size_t factor) const { return places && factors[factor].Has(*places); }
  int64_t Places() const { return places.has_value() ? kernel.axes[*places].extent : 1; }
  int64_t StoredPlaces() const { return stores_places ? Places() : 1; }
  // Is it the axis of places, or one that is reduced, which what is stored does not have?
  bool IsLost(size_t axis) const { return axis == over || (axis == places && !stores_places); }
  int64_t Depth() const { return kernel.reduce_axes[depth].extent; }
  size_t DepthAxis() const { return kernel.axes.size() + depth; }
  int64_t Shared() const { return kernel.reduce_axes[shared_axis].extent; }
  // The factor that brings the axis along which elements of the result, which has no places, lie
  // closest, if one does.
  std::optional<size_t> ResultInner() const;
  // The type of what a block stores, which may be a part of the sums alone.
  DType ResultType(bool is_part) const;
  bool IsCopied() const { return factors[0].is_copied && factors[1].is_copied; }
  bool IsBoxed() const { return factors[0].is_boxed && factors[1].is_boxed; }
  // Do the elements of a factor lie one behind the other along the axis of the result, or along the
  // reduction? Neither may be.
  bool IsAlongOwn(size_t factor) const { return factors[factor].inner == factors[factor].own; }
  bool IsAlongDepth(size_t factor) const { return factors[factor].inner == DepthAxis(); }

 private:
  void FindParts(const ProgramShape& program, const ScheduledStage& sum, const Operands& operands);
  void ChooseShared(int64_t step);
  bool ChooseDepth(int64_t step, const std::function<bool(size_t)>& is_zero_past);
  bool ChooseOwn(size_t number);
  void ChooseAccess(const ProgramShape& program, const ScheduledStage& sum, const Expr& value,
                    Factor& factor) const;
  void ChooseBoxes(const ScheduledStage& sum, const Expr& value, Factor& factor) const;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_MATRIX_KERNEL_H_
