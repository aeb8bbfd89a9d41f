// Reductions over the rows of which an output is made, such as the gradients of a norm's weights
// beside that of its input.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_BESIDE_ROWS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_BESIDE_ROWS_H_

#include <optional>
#include <vector>

#include "search_space/schedule/schedule.h"
#include "search_space/sketch/kernels/kernel_shape.h"

namespace heddle::search_space {

// Those of the largest elementwise output, along which its last axis runs, that are over its rows
// (all, or of each of its outermost axes), that it does not depend on, that have something to read
// in common with it, and of which none reads another one.
std::vector<BufferRef> SumsBesideRows(const Schedule& schedule);

// `shape` with its kernels' reductions over rows of what another kernel makes element by element,
// such as the sum of a bias's gradient over that of an activation, computed beside these rows: what
// reads the elements in such a sum computes them again. nullopt where there are none.
std::optional<ProgramShape> WithSumsBeside(const ProgramShape& shape);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_BESIDE_ROWS_H_
