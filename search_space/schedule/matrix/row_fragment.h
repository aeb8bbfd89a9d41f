#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_ROW_FRAGMENT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_ROW_FRAGMENT_H_

#include "search_space/schedule/matrix/fragment.h"

namespace heddle::search_space {

// Keeps a local reduction that is not attached yet as one value for each row of what a warp, or a
// warpgroup, adds up by a matrix instruction (fragment, operand d): every lane that holds elements
// of a row has its value. `row` is the axis of the rows.
struct RowFragment {
  std::string stage;
  MatrixInstruction instruction;
  std::string row;

  const FragmentLayout& layout() const { return ShapeOf(instruction).Layout(MatrixOperand::kD); }
  // Elements along an axis of the stage that stand in one matrix.
  int64_t Extent(const std::string& axis) const { return axis == row ? layout().rows : 1; }
  // Values of a matrix that one lane has.
  int64_t elements() const { return layout().row_blocks(); }

  // Of a region of the stage that a warp, or a warpgroup, holds: rows of whole matrices, of other
  // axes one element.
  absl::Status CheckRegion(const ScheduledStage& here, const std::vector<Expr>& base,
                           const std::vector<int64_t>& extent) const;

  HEDDLE_ANNOTATION(RowFragment, "row_fragment", stage, instruction, row);
};

// The axis of the rows of what warps hold: of a fragment or a row_fragment.
const Var& RowOf(const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_ROW_FRAGMENT_H_
