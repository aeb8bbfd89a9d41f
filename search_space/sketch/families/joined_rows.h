// Programs of several kernels, one of which reduces the rows that it makes.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_JOINED_ROWS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_JOINED_ROWS_H_

#include <vector>

#include "search_space/ir/target.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Adds, of each way in which the program falls into several kernels, those that have reductions of
// what another kernel makes, or over it, in that kernel (kernels/beside_rows.h,
// kernels/row_statistics.h), where there are such. The first few ways are the best ones. What one
// kernel can do is not divided for it. Together they are drawn half as often as all others, each
// once at least.
void AddJoinedRows(const Target& target, std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_JOINED_ROWS_H_
