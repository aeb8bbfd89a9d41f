// What a workload is tried on, how far from right is still right, and how fast is too fast to be
// true (docs/measurement.md).
#ifndef HEDDLE_MEASURE_JUDGE_CRITERIA_H_
#define HEDDLE_MEASURE_JUDGE_CRITERIA_H_

#include <cstdint>
#include <vector>

#include "measure/device/outcome.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/reference/samples.h"

namespace heddle::measure {

enum class InputKind : uint8_t {
  kUniform,   // [-1, 1), multiples of 2^-23
  kNormal,    // about the standard normal distribution, as models' data are: what power is drawn by
  kPositive,  // [0.25, 1.25): for programs that are not finite on negative values
  kSmall,     // [-1/16, 1/16): for programs that make others' spread too wide, as exp of long sums
  kIntegers,  // -4 .. 4: sums and products of them are exact, in whatever order
  kPeaks,     // of class Peaks (peaks.h): few terms make a sum
  kExtremes,  // the same for maxima and minima: one term makes each
  kPowers,    // 1, 2, 1/2, either sign: products of them are exact, in whatever order
};

// 64 bits that depend on nothing but the arguments: the same in every process.
uint64_t InputHash(uint64_t seed, int tensor, int64_t offset);

// Element `offset` of input `tensor`: a hash of its arguments, so that any element can be had
// without the others, on any thread, in any process; not rounded to the tensor's type yet. Of
// kUniform, kNormal, kPositive, kSmall or kIntegers.
float InputValue(uint64_t seed, int tensor, int64_t offset, InputKind kind);
// The same of kPowers, of which `share` are not 1 or -1.
float InputPower(uint64_t seed, int tensor, int64_t offset, double share);
// The same of an input that holds indices, whatever the kind of the others: each of [0, extent) as
// often as any other.
int64_t InputIndex(uint64_t seed, int tensor, int64_t offset, int64_t extent);

// BufferSetCount (timing.h) of all that a program reads and writes. Inputs of which indices name a
// part fill the memory whole, and the cache with that part.
int BufferSetsOf(const search_space::TensorProgram& program, L2Policy l2, int64_t cache_bytes,
                 int64_t free_bytes);

// A lower bound of the seconds any program takes: faster is kImplausible. A quarter below what peak
// arithmetic and memory bandwidth allow; data that fit into the cache may come from it, for which
// the bound assumes a bandwidth 16 times that of the memory.
double FastestPlausible(const search_space::TensorProgram& program,
                        const search_space::Target& target, L2Policy l2);

// True when every stage is a chain of +, -, *, max, min, select and comparison: on integers of
// moderate size all orders of evaluation agree to the last bit. Not where an operand that may be
// split into parts (search_space/ir/parts.h) may be larger than what these are exact for.
bool IsExactOnIntegers(const search_space::TensorProgram& program);

// True when every stage is made of *, max, min, select and comparison, of numbers that are powers
// of two: the same for kPowers.
bool IsExactOnPowers(const search_space::TensorProgram& program);

// Largest deviation from the expected value allowed, given the largest magnitude (SamplePoint) seen
// in an output; proportional to the square root of the number of additions, and kPartsLoss more for
// each operand that may be split into parts (docs/measurement.md, with the source).
double Tolerance(const search_space::TensorProgram& program, double magnitude);

// What sums of a program may lose on matrix units, as a share of their value: these align what they
// add to the largest term and cut off the rest, one unit of float32 in each step of an
// instruction, always in the same direction (M. Fasi et al., Numerical behavior of NVIDIA tensor
// cores, PeerJ Computer Science 7, 2021). 0 where `target` has no such units for the program.
double Truncation(const search_space::TensorProgram& program, const search_space::Target& target);

// What float32 additions one after another, each term to the sum so far, may lose at most.
double LongestLoss(const search_space::TensorProgram& program, double magnitude);

// How far the elements of an output may be from what is expected: by absolute x (1 + slack x
// |expected|).
struct Allowed {
  double absolute = 0;
  double slack = 0;
};
// Of an output of `type` of which `samples` are some points. Two roundings to 16 bits, of what is
// compared and of what it is compared with, are part of it. Where all is exact nothing is allowed.
// kPeaks makes elements of very different sizes, which must not share one tolerance: theirs is a
// line above the magnitudes of all samples. The magnitudes on other inputs are much alike, and
// Tolerance of the largest is allowed for each, and so is the Truncation of the largest value; on
// kPeaks that of its own. Two sorts of samples have no part in it, so that they excuse no others:
// those that are exact, such as a mask's -3e38, and, where they are few, those that their own
// rounding errors swallow, such as a row of which a mask of -1e9 leaves nothing.
Allowed AllowedOf(const search_space::TensorProgram& program, InputKind kind,
                  search_space::DType type, const std::vector<search_space::SamplePoint>& samples,
                  double truncation);

// How far an element may be from `expected`.
double ToleranceAt(const Allowed& allowed, double expected);

// The share of `samples` other than 0 that show a kernel which writes nothing but zeros: not those
// whose own size, and what their own rounding errors could explain, are less than is allowed, as
// nearly all are in products of hundreds of random factors. 1 where all are 0.
double ToldShare(const search_space::TensorProgram& program, const Allowed& allowed,
                 const std::vector<search_space::SamplePoint>& samples);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_CRITERIA_H_
