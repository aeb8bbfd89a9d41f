// Single elements of a program's stages, in double precision. Not for users of the reference.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_STAGE_EVALUATOR_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_STAGE_EVALUATOR_H_

#include <cstdint>
#include <vector>

#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/reference/reference_program.h"

namespace heddle::search_space {

// What a tensor of a narrow type keeps of a value; others are taken to keep all of it.
inline double InMemory(DType type, double value) {
  return IsNarrow(type) ? RoundTo(type, value) : value;
}

// Where tensors' elements come from.
class Source {
 public:
  virtual ~Source() = default;
  virtual Scalar Input(int input, int64_t offset) = 0;
  // All elements of an input, where they are kept.
  virtual const float* WholeInput(int /*input*/) const { return nullptr; }
  // `count` elements of a stage that lie `step` apart from `offset` on.
  virtual void Intermediates(int stage, int64_t offset, int64_t step, int count,
                             Scalar* values) = 0;
};

// Every stage has its own working memory: a stage never evaluates itself, so that recursion from
// one stage into another through `source` is safe.
class StageEvaluator {
 public:
  // With `turned` as if rounding had turned every comparison that it may.
  StageEvaluator(const TensorProgram& program, Source& source, bool turned = false);

  // As it is computed, not rounded to the tensor's type yet.
  Scalar Element(int stage, int64_t offset) { return Part(stage, offset, 0, Terms(stage)); }
  // What a reduction makes of its terms number `begin` to `end`, of which there is one at least.
  Scalar Part(int stage, int64_t offset, int64_t begin, int64_t end);
  // So many elements of a stage that reduces nothing, neighbours along its last axis from `offset`
  // on, up to StageProgram::kLanes.
  void Elements(int stage, int64_t offset, int count, Scalar* elements);
  int64_t Terms(int stage) const;
  // Instructions of an element, beside those of what it reads.
  double OperationsOf(int stage) const;

  // Instructions executed so far.
  int64_t operations() const { return operations_; }

 private:
  struct Frame {
    StageProgram program;
    std::vector<int64_t> axes;  // current values of axes, then reduction axes
    // Of StageProgram::kLanes evaluations.
    std::vector<Scalar> values;
    std::vector<int64_t> integers;
  };
  Scalar SumOfProducts(const Stage& stage, Frame& frame, int64_t terms);
  void AddProducts(Frame& frame, int64_t count, Scalar& total);
  // The values of `count` terms in frame.values, false as StageProgram::Run.
  bool Run(Frame& frame, int count);
  void Load(const TensorId& tensor, int64_t offset, int64_t step, int count, Scalar* values);

  const TensorProgram& program_;
  Source& source_;
  const bool turned_;
  std::vector<Frame> frames_;
  int64_t operations_ = 0;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_STAGE_EVALUATOR_H_
