#ifndef HEDDLE_SEARCH_SPACE_SKETCH_SKETCHES_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_SKETCHES_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

inline constexpr size_t kMostSketches = 256;  // a point numbers its sketch in a byte

// The sketches of every algorithm (algorithms.h), in the order in which points number them: the
// simplest one first. At most so many; what comes behind is left out.
std::vector<Sketch> SketchesOf(const std::shared_ptr<const TensorProgram>& program,
                               const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_SKETCHES_H_
