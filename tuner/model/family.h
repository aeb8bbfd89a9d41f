// Which workloads teach about each other, so that a model can be judged on what it has seen nothing
// like.
#ifndef HEDDLE_TUNER_MODEL_FAMILY_H_
#define HEDDLE_TUNER_MODEL_FAMILY_H_

#include <string>

#include "search_space/ir/tensor_program.h"

namespace heddle::tuner {

// How the reductions of a program are built, whatever its name, layout, batch and epilogue: equal
// for matmul, its transposed and batched variants and 1x1 convolutions; for convolutions of either
// layout; for softmax and layer_norm; for everything without a reduction. Such as "2 reads, 2 free,
// window".
std::string FamilyOf(const search_space::TensorProgram& program);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_FAMILY_H_
