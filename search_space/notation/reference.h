// The meaning of a tensor program, computed directly from its definition in double precision. It
// shares nothing with schedules, lowering and code generation: validation and tests compare with
// it.
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_REFERENCE_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/ir/tensor_values.h"

namespace heddle::search_space {

// Evaluates every stage completely, on inputs rounded to their tensors' types; adds all stages'
// values to `values`, which holds the inputs. For small shapes.
void EvaluateAll(const TensorProgram& program, TensorValues& values);

// An output element chosen for checking.
struct SamplePoint {
  int output;      // index into the program's stages with is_output, in definition order
  int64_t offset;  // row-major element offset
  double value;    // what the definition says, rounded to the output's type where that has 16 bits
  // Sum of the absolute values of what was added up for it (through nested reductions): the scale
  // to which rounding errors are proportional. At least |value|. The rounding to the output's type
  // is no part of it.
  double magnitude;
  // Copied or chosen from inputs and numbers of the definition: nothing but the rounding to the
  // output's type can change it.
  bool exact = false;
};

// Evaluates up to `count` random elements of each output at the real shape without evaluating whole
// tensors. `input(i, offset)` gives element `offset` of program.inputs[i]. Intermediate elements
// are shared between the samples, which are therefore drawn in clusters where an output needs whole
// reductions per row. Work is bounded by `max_operations` scalar operations (fewer samples then,
// but at least 16 of each output); runs on `threads` threads. The choice depends only on `seed` and
// the program.
std::vector<SamplePoint> EvaluateSamples(const TensorProgram& program,
                                         const std::function<double(int, int64_t)>& input,
                                         int64_t count, uint64_t seed, int64_t max_operations,
                                         int threads);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_NOTATION_REFERENCE_H_
