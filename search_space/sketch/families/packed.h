// Sketches with tensors of products copied to layouts that are read faster.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_PACKED_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_PACKED_H_

#include <memory>
#include <string>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Adds those with the tensors of products in layouts that are read faster (packing.h), behind the
// steps of `shape`, which an algorithm of that name has made. What packs all it can is drawn more
// often. What these steps store is stored as the copy alone.
void AddPacked(const std::shared_ptr<const TensorProgram>& program, const Target& target,
               const ProgramShape& shape, const std::string& name, std::vector<Sketch>& sketches);

// Adds those that store what several convolutions read in windows once (permute.h), or what one
// reads a copy of with a border and others read, too, behind the steps that make rows of the
// windows' positions, and those of them that pack what else these read.
void AddSharedWindows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                      const Algorithm& flattening, std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_PACKED_H_
