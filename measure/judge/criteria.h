// What a workload is tried on, how far from right is still right, and how fast is too fast to be
// true (docs/measurement.md).
#ifndef HEDDLE_MEASURE_JUDGE_CRITERIA_H_
#define HEDDLE_MEASURE_JUDGE_CRITERIA_H_

#include <cstdint>

#include "measure/device/outcome.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::measure {

enum class InputKind : uint8_t {
  kUniform,   // [-1, 1), multiples of 2^-23
  kPositive,  // [0.25, 1.25): for programs that are not finite on negative values
  kIntegers,  // -4 .. 4: sums and products of them are exact, in whatever order
};

// Element `offset` of input `tensor`: a hash of its arguments, so that any element can be had
// without the others, on any thread, in any process.
float InputValue(uint64_t seed, int tensor, int64_t offset, InputKind kind);

// A lower bound of the seconds any program takes: faster is kImplausible. A quarter below what peak
// arithmetic and memory bandwidth allow; data that fit into the cache may come from it, for which
// the bound assumes a bandwidth 16 times that of the memory.
double FastestPlausible(const search_space::TensorProgram& program,
                        const search_space::Target& target, L2Policy l2);

// True when every stage is a chain of +, -, *, max, min, select and comparison: on integers of
// moderate size all orders of evaluation agree to the last bit.
bool IsExactOnIntegers(const search_space::TensorProgram& program);

// Largest deviation from the expected value allowed, given the largest magnitude (SamplePoint) seen
// in an output; proportional to the square root of the number of additions
// (docs/measurement.md, with the source).
double Tolerance(const search_space::TensorProgram& program, double magnitude);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_CRITERIA_H_
