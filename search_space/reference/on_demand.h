// Elements of a program's stages that are computed when they are asked for. Not for users of the
// reference.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_ON_DEMAND_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_ON_DEMAND_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/reference/kept.h"
#include "search_space/reference/stage_evaluator.h"

namespace heddle::search_space {

// What it remembers at most, and what each of many does that are at work together.
inline constexpr size_t kMostRemembered = size_t{1} << 21, kMostOfEach = size_t{1} << 19;

// Computes what is asked for and not kept, and remembers what is worth remembering.
class OnDemand : public Source {
 public:
  // All must outlive it. `turned`: as of StageEvaluator; of what is not kept. What `base`, if any,
  // knows it need not compute: nobody may ask that for anything meanwhile.
  OnDemand(const TensorProgram& program, const Kept& kept, bool turned = false,
           const OnDemand* base = nullptr);

  Scalar Input(int input, int64_t offset) override { return kept_.Input(input, offset); }
  const float* WholeInput(int input) const override { return kept_.WholeInput(input); }
  void Intermediates(int stage, int64_t offset, int64_t step, int count, Scalar* values) override;

  // As StageEvaluator::Element. A long reduction is added up in parts, one after the other: the
  // result is the same where several threads have computed these.
  Scalar Computed(int stage, int64_t offset);
  // The same, not remembered itself.
  Scalar Once(int stage, int64_t offset);
  // The same, on so many threads.
  Scalar OnThreads(int stage, int64_t offset, int threads);
  // As StageEvaluator::Elements, not remembered.
  void Elements(int stage, int64_t offset, int count, Scalar* elements) {
    evaluator_.Elements(stage, offset, count, elements);
  }
  // What the element has of one term of a reduction.
  Scalar Term(int stage, int64_t offset, int64_t number) {
    return evaluator_.Part(stage, offset, number, number + 1);
  }

  // Forgets what is too much to remember: `most` elements.
  void ForgetIfMuch(size_t most = kMostRemembered);
  // As if it had computed what `other` has, too, unless that is too much to remember.
  void Remember(const OnDemand& other);

  int64_t operations() const { return evaluator_.operations(); }

 private:
  struct Terms {
    int64_t begin, end;
  };
  size_t PartsOf(int stage) const;  // of its reduction; below 2 it is not long
  Terms PartOf(int stage, size_t number) const;
  Scalar Forgetful(int stage, int64_t offset, Terms terms);
  bool AreComputedAtOnce(int stage, int64_t offset, int count) const;
  // Null where it has not been computed or is forgotten.
  const Scalar* Known(int stage, int64_t offset) const;

  const TensorProgram& program_;
  const Kept& kept_;
  const OnDemand* const base_;
  StageEvaluator evaluator_;
  std::vector<absl::flat_hash_map<int64_t, Scalar>> memory_;
  size_t remembered_ = 0;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_ON_DEMAND_H_
