// Sketches of reductions of rows that are taken in parts of the rows' columns first
// (reduce_in_parts.h).
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ROW_PARTS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ROW_PARTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Rows a multiprocessor: with more of them a kernel of whole rows keeps all of these busy.
inline constexpr int64_t kFewLongRows = 2;

// Adds those of rows of products, which a tile of the product reduces: in its own kernel the
// product would be stored.
void AddRowParts(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 std::vector<Sketch>& sketches);

// Adds those of few long rows of an input, with several reductions that depend on one another:
// parts are many enough for the whole device, and read once for all reductions.
void AddLongRows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 std::vector<Sketch>& sketches);

// Adds those with elements of a product that few read reduced again (recompute.h), where its rows
// are reduced in parts then: with these reads it would be stored.
void AddRecomputed(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                   std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ROW_PARTS_H_
