// A factor of a product of matrices, and how its tiles come where instructions read them.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_FACTOR_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_FACTOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/tiling/tiled_kernel.h"

namespace heddle::search_space {

// One of the two matrices, as it is read.
struct Factor {
  Operand operand;
  std::vector<size_t> axes;  // in memory order; those of the reduction are behind the data axes
  size_t own;                // the data axis, of those that the other factor does not have, to tile
  size_t inner;              // the axis to tile, own or the reduction's, whose elements lie closest
  // Of its tiles in shared memory, whose dimensions are `axes`: their order, the inner one last.
  std::vector<size_t> layout;
  int64_t vector = 1;      // elements of the widest access
  bool is_copied = false;  // may asynchronous copies fetch it?
  bool is_boxed = false;   // are its tiles boxes of a tensor, which bulk copies fetch?
  // Is one of the boxes' indices computed from axes that are not tiled, as that of a head's group
  // is?
  bool has_computed_index = false;
  // Where these are boxes of one of two tensors that follow one another: the axis, and where the
  // second one begins, which must not be inside a tile.
  struct Seam {
    size_t axis;
    int64_t at;
  };
  std::optional<Seam> seam;
  // The axis of the reduction that it has alone if it is the parts of a stage (split_operand.h):
  // its tiles hold all parts, each of which is multiplied with one tile of the other factor.
  std::optional<size_t> parts;

  bool Has(size_t axis) const;
  // The same where its tiles are those of a copy of the tensor that it loads (cache_read), of so
  // many dimensions, which its axes have these of; it is at one place of the others.
  Factor OfCopy(const std::vector<size_t>& dims, size_t rank) const;
  int64_t Parts() const { return parts.has_value() ? kPartCount : 1; }
  // Has so many threads fetch `stage`, which it is, into shared memory at a loop, swizzled so that
  // instructions read it without conflicts.
  void WriteTile(ScheduleWriter& w, const StageRef& stage, int64_t threads,
                 const LoopRef& at) const;
  // The same in lines of `span` elements, as instructions of warpgroups read it.
  void WriteLines(ScheduleWriter& w, const StageRef& stage, int64_t threads, const LoopRef& at,
                  int64_t span) const;
};

// Has each warp read what it multiplies of `tile`, an operand of `sum`, at a loop: a fragment whose
// rows are along the sum's data axis `own`, and whose columns along its reduction axis `depth`.
void WriteFragment(ScheduleWriter& w, const StageRef& sum, const StageRef& tile, size_t own,
                   size_t depth, MatrixInstruction instruction, MatrixOperand operand,
                   const LoopRef& at);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_FACTOR_H_
