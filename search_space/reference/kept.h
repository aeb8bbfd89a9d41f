// What of a program's elements is kept whole while single ones are computed. Not for users of the
// reference.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_KEPT_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_KEPT_H_

#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "search_space/ir/tensor_program.h"
#include "search_space/reference/stage_evaluator.h"

namespace heddle::search_space {

// Element `offset` of an input, thread-safe.
using InputElement = std::function<double(int input, int64_t offset)>;

// What it costs to evaluate a stage.
struct StageCost {
  double operations = 0;         // instructions of an element, without those of what it reads
  double operations_of_all = 0;  // the same of all elements, where they are computed together
  bool is_remembered = false;    // does it take longer to evaluate an element again?
  bool is_read = false;          // by another stage
  bool is_placed = false;        // do its terms name their places (placed_terms.h)?
};
std::vector<StageCost> CostsOf(const TensorProgram& program);

// All elements of a stage.
class StageValues {
 public:
  explicit StageValues(int64_t elements)
      : values_(static_cast<size_t>(elements)),
        magnitudes_(static_cast<size_t>(elements)),
        flags_(static_cast<size_t>(elements)) {}

  int64_t elements() const { return std::ssize(values_); }
  Scalar At(int64_t offset) const;
  void Set(int64_t offset, const Scalar& x);

 private:
  static constexpr uint8_t kExact = 1, kContested = 2, kUncertain = 4;
  std::vector<double> values_, magnitudes_;
  std::vector<uint8_t> flags_;  // kExact and the like
};

// Inputs, and all elements of stages that others read, as far as they are kept (keep_stages.h).
class Kept {
 public:
  // Both must outlive it.
  Kept(const TensorProgram& program, const InputElement& input);

  const std::vector<StageCost>& costs() const { return costs_; }

  // Of a type whose values float32 has, all.
  void KeepInput(int input, std::vector<float> values) { inputs_[input] = std::move(values); }
  void KeepStage(int stage, StageValues values) { stages_[stage] = std::move(values); }

  Scalar Input(int input, int64_t offset) const;
  const float* WholeInput(int input) const;
  bool HasStage(int stage) const { return stages_[stage].elements() > 0; }
  // Are all stages kept that it reads?
  bool HasAllReadBy(int stage) const;
  Scalar Stage(int stage, int64_t offset) const { return stages_[stage].At(offset); }

 private:
  double Made(int input, int64_t offset) const;

  const TensorProgram& program_;
  const InputElement& input_;
  const std::vector<StageCost> costs_;
  std::vector<std::vector<float>> inputs_;  // those that are kept, whole
  std::vector<StageValues> stages_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_KEPT_H_
