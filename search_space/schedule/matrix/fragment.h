#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_FRAGMENT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_FRAGMENT_H_

#include "search_space/ir/matrix.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

constexpr auto WordsOf(MatrixInstruction /*unused*/) {
  return std::array{"mma_m16n8k16",     "wgmma_m64n8k16",   "wgmma_m64n16k16",  "wgmma_m64n32k16",
                    "wgmma_m64n64k16",  "wgmma_m64n96k16",  "wgmma_m64n128k16", "wgmma_m64n160k16",
                    "wgmma_m64n192k16", "wgmma_m64n224k16", "wgmma_m64n256k16", "mma_m16n8k8",
                    "wgmma_m64n8k8",    "wgmma_m64n16k8",   "wgmma_m64n32k8",   "wgmma_m64n64k8",
                    "wgmma_m64n96k8",   "wgmma_m64n128k8",  "wgmma_m64n160k8",  "wgmma_m64n192k8",
                    "wgmma_m64n224k8",  "wgmma_m64n256k8"};
}
constexpr auto WordsOf(MatrixOperand /*unused*/) { return std::array{"a", "b", "d"}; }

// Keeps a local stage that is not attached yet as an operand of a matrix instruction: the threads
// of a warp hold what they need of it together. Axes `row` and `col` are those of the operand's
// matrix (matrix.h). Who reads an element must be the thread that holds it. Operand d is a sum, or
// an elementwise stage of the same type that lies as results do.
struct Fragment {
  std::string stage;
  MatrixInstruction instruction;
  MatrixOperand operand;
  std::string row, col;

  const FragmentLayout& layout() const { return ShapeOf(instruction).Layout(operand); }
  // Elements along an axis of the stage that stand in one matrix.
  int64_t Extent(const std::string& axis) const;

  HEDDLE_ANNOTATION(Fragment, "fragment", stage, instruction, operand, row, col);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_FRAGMENT_H_
