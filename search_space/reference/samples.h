// What a program's definition makes of some elements of its outputs, at any shape: what kernels are
// checked by.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_SAMPLES_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_SAMPLES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

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
  // Rounding may turn a comparison that it was chosen by, as that of the two best of a row for the
  // first place, and so give another number.
  bool uncertain = false;
};

// Evaluates up to `count` random elements of each output at the real shape without evaluating whole
// tensors, but for intermediate ones of which sixteen samples need all. `input(i, offset)` gives
// element `offset` of program.inputs[i]. Intermediate elements are shared between the samples,
// which are therefore drawn in clusters where an output needs whole reductions per row. Work beside
// whole tensors is bounded by `max_operations` scalar operations (fewer samples then, but at least
// 16 of each output); runs on `threads` threads. The choice depends only on `seed` and the program.
std::vector<SamplePoint> EvaluateSamples(const TensorProgram& program,
                                         const std::function<double(int, int64_t)>& input,
                                         int64_t count, uint64_t seed, int64_t max_operations,
                                         int threads);

// The same for elements that are given; none where that takes more than `max_operations`. With
// `turned` as if rounding had turned every comparison that it may: what an uncertain element may be
// instead.
std::vector<SamplePoint> EvaluateElements(const TensorProgram& program, int output,
                                          absl::Span<const int64_t> offsets,
                                          const std::function<double(int, int64_t)>& input,
                                          int64_t max_operations, int threads, bool turned = false);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_SAMPLES_H_
