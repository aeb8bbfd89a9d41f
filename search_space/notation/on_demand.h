// Elements of a program's stages that are computed when they are asked for. Not for users of the
// reference.
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_ON_DEMAND_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_ON_DEMAND_H_

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/notation/reference_program.h"
#include "search_space/notation/stage_evaluator.h"

namespace heddle::search_space {

// Element `offset` of an input, thread-safe.
using InputElement = std::function<double(int input, int64_t offset)>;

// What it costs to evaluate a stage.
struct StageCost {
  double operations = 0;         // instructions of an element, without those of what it reads
  double operations_of_all = 0;  // the same of all elements, where they are computed together
  bool is_remembered = false;    // does an element take more than an expression of inputs?
  bool is_read = false;          // by another stage
  bool is_placed = false;        // do its terms name their places (placed_terms.h)?
};
std::vector<StageCost> CostsOf(const TensorProgram& program);

// Inputs, and all elements of stages that others read, as far as they are kept.
class Kept {
 public:
  // Both must outlive it.
  Kept(const TensorProgram& program, const InputElement& input);

  const std::vector<StageCost>& costs() const { return costs_; }

  // Computes and keeps the inputs of up to some 10^7 elements, and those of `stages` of up to some
  // 10^8, all together, that others read and that cost more than their inputs, or whose terms name
  // their places. Of the latter each term is looked at once, of others each element is computed
  // once, and the same whatever the threads. Those of `in_one_pass` are kept, too, unless it turns
  // out that a look at each term is not enough.
  void Keep(const std::set<int>& stages, const std::set<int>& in_one_pass, int threads);

  Scalar Input(int input, int64_t offset) const;
  const double* WholeInput(int input) const;
  bool HasStage(int stage) const { return !stages_[stage].values.empty(); }
  Scalar Stage(int stage, int64_t offset) const;

 private:
  struct Values {
    std::vector<double> values;
    std::vector<double> magnitudes;
    std::vector<uint8_t> flags;  // kExact and the like
  };
  static constexpr uint8_t kExact = 1, kContested = 2, kUncertain = 4;
  static Scalar At(const Values& all, int64_t offset);
  static void Set(Values& all, int64_t offset, const Scalar& x);
  void KeepInputs(int threads);
  void KeepStage(int stage, bool in_any_case, int threads);
  // All elements of a stage: each by itself, or each term where it belongs; false as OnePass::Run.
  void ComputeEach(int stage, int threads, Values& all) const;
  bool ComputeTogether(int stage, int threads, Values& all) const;
  double Made(int input, int64_t offset) const;

  const TensorProgram& program_;
  const InputElement& input_;
  const std::vector<StageCost> costs_;
  std::vector<std::vector<double>> inputs_;  // those that are kept, whole
  std::vector<Values> stages_;
};

// Computes what is asked for and not kept, and remembers what is worth remembering.
class OnDemand : public Source {
 public:
  // Both must outlive it. `turned`: as of StageEvaluator; of what is not kept.
  OnDemand(const TensorProgram& program, const Kept& kept, bool turned = false);

  Scalar Input(int input, int64_t offset) override { return kept_.Input(input, offset); }
  const double* WholeInput(int input) const override { return kept_.WholeInput(input); }
  Scalar Intermediate(int stage, int64_t offset) override {
    return Converted(program_.stages[stage].tensor->dtype, Computed(stage, offset));
  }

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

  // Forgets what is too much to remember.
  void ForgetIfMuch();
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

  const TensorProgram& program_;
  const Kept& kept_;
  StageEvaluator evaluator_;
  std::vector<absl::flat_hash_map<int64_t, Scalar>> memory_;
  size_t remembered_ = 0;
};

// What OnDemand remembers at most.
inline constexpr size_t kMostRemembered = size_t{1} << 20;

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_NOTATION_ON_DEMAND_H_
