// Statistics of the rows of which another kernel makes something element by element.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_ROW_STATISTICS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_ROW_STATISTICS_H_

#include <optional>

#include "search_space/sketch/kernels/kernel_shape.h"

namespace heddle::search_space {

// `shape` with kernels that reduce each row of a tensor, such as the logarithm of a sum of
// exponentials of logits, in the kernel that makes an element of each of that tensor's, such as the
// logits rounded: what one of its passes reads is in the cache for the other. nullopt where there
// are none. A kernel takes one of them.
std::optional<ProgramShape> WithRowStatistics(const ProgramShape& shape);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_ROW_STATISTICS_H_
