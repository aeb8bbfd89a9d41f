// Sketches that are there for units that multiply matrices.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_MATRIX_SKETCHES_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_MATRIX_SKETCHES_H_

#include <memory>
#include <vector>

#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Are there more reductions in a chain than two products, such as a row's statistics? Without any,
// products of their own need not wait for rows, and are for units that multiply matrices, too.
bool HasMoreThanTwo(const KernelShape& chain);

// Adds what an algorithm makes: one kernel that takes statistics of rows along, or, of parts,
// several.
void AddForMatrices(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                    const Algorithm& algorithm, std::vector<Sketch>& sketches);

// Adds those with products of which only what is made of their elements at several places of an
// axis is stored, as of the halves of gated units (split_axis.h); in its own kernel the product
// would be.
void AddPlaces(const std::shared_ptr<const TensorProgram>& program, const Target& target,
               std::vector<Sketch>& sketches);

// The same of products that share a factor (stack_products.h).
void AddStacked(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                std::vector<Sketch>& sketches);

// Adds those with products whose elements are reduced over an axis that both sums and tiles leave
// alone, such as the heads of scores that are summed up, in the same kernel: in its own the product
// would be stored for each of these.
void AddReduced(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                std::vector<Sketch>& sketches);

// Adds those with products of whose rows, which a tile has whole, all that follows is computed in
// the same kernel (whole_rows.h).
void AddWholeRows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                  std::vector<Sketch>& sketches);

// Adds those in which each of several outputs has its own kernels for what they share, such as the
// scores of which the gradients of attention are made (own_stages.h).
void AddOwnStages(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                  std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_MATRIX_SKETCHES_H_
