// The meaning of a tensor program, computed directly from its definition in double precision. It
// shares nothing with schedules, lowering and code generation: validation and tests compare with
// it. samples.h has single elements at shapes of which not all can be evaluated.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_REFERENCE_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_REFERENCE_H_

#include "search_space/ir/tensor_program.h"
#include "search_space/ir/tensor_values.h"

namespace heddle::search_space {

// Evaluates every stage completely, on inputs rounded to their tensors' types; adds all stages'
// values to `values`, which holds the inputs. For small shapes.
void EvaluateAll(const TensorProgram& program, TensorValues& values);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_REFERENCE_H_
