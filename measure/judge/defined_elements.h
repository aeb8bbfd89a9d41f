// What the definition makes of single elements of a program's outputs: looked up where an element
// is not as expected, so that the definition itself decides (docs/measurement.md). Nothing here
// needs a device.
#ifndef HEDDLE_MEASURE_JUDGE_DEFINED_ELEMENTS_H_
#define HEDDLE_MEASURE_JUDGE_DEFINED_ELEMENTS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "measure/device/compare.h"
#include "measure/judge/inputs.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/reference/samples.h"

namespace heddle::measure {

// Of inputs of one kind. What was looked up once is kept.
class DefinedElements {
 public:
  // `program` and `inputs` must outlive it; `sampled` is of these inputs. On `threads` threads.
  DefinedElements(const search_space::TensorProgram& program, const Inputs& inputs,
                  const Sampled& sampled, int threads);

  // Does the definition allow the elements `found` of an output, which are not as expected? It does
  // where they are as far from it as the rounding of what they themselves are made of explains.
  // Where a decision that rounding may turn is all that they hang on, such as which of two nearly
  // equal scores is among a row's best, they may be what the other one makes of them, and where
  // next to nothing is left of numbers that cancel, what rounding leaves of these; such are few of
  // an output's. Not where `found` does not name them all. `got` is the output's data.
  bool Allow(size_t output, const Mismatch& found, const void* got);

  // May `sample`, if uncertain, be `got` instead: what the decisions that rounding may turn make of
  // it, turned?
  bool AllowTurned(const search_space::SamplePoint& sample, float got);

 private:
  void LookUp(size_t output, absl::Span<const int64_t> offsets);
  bool IsNear(const search_space::SamplePoint& point, float got) const;
  bool IsOfCancelled(const search_space::SamplePoint& point, float got) const;

  const search_space::TensorProgram* program_;
  const Inputs* inputs_;
  InputKind kind_;
  int threads_;
  struct Output {
    search_space::BufferRef tensor;
    Allowed allowed;
    double size = 0;  // the largest |value| sampled that is not exact
    // By offset: as the definition is, and with the comparisons turned that rounding may turn.
    absl::flat_hash_map<int64_t, std::array<search_space::SamplePoint, 2>> known;
  };
  std::vector<Output> outputs_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_DEFINED_ELEMENTS_H_
