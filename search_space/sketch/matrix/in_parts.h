// The kernels of a program whose float32 operands are split into parts (split_operand.h).
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_IN_PARTS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_IN_PARTS_H_

#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernels.h"

namespace heddle::search_space {

struct InParts {
  Partition partition;
  std::shared_ptr<const ProgramShape> shape;
};

// The program behind `steps`, which split operands, in kernels of one reduction each. Parts are
// made as the tiles of a product are fetched, or `stored` by the kernel that makes what they are
// of, which is then not stored itself where nobody else reads it.
InParts FindInParts(const std::shared_ptr<const TensorProgram>& program,
                    const std::vector<Step>& steps, bool stored);

// Is the kernel a sum of products of parts?
bool MultipliesParts(const ProgramShape& shape, const KernelShape& kernel);

// Of steps that split operands those whose product units for matrices can compute from stored
// parts, if in float32 it takes long enough beside what moving inputs and outputs does.
std::vector<Step> WorthSplitting(const std::shared_ptr<const TensorProgram>& program,
                                 const std::vector<Step>& steps, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_IN_PARTS_H_
