#include "search_space/reference/reference.h"

#include <utility>
#include <vector>

#include "search_space/reference/stage_evaluator.h"

namespace heddle::search_space {
namespace {

class WholeTensors : public Source {
 public:
  WholeTensors(const TensorProgram& program, const TensorValues& values) : program_(program) {
    for (const BufferRef& input : program.inputs) {
      inputs_.push_back(values.at(input->name).data());
    }
  }

  void AddStage(const std::vector<double>& elements) { stages_.push_back(elements.data()); }

  Scalar Input(int input, int64_t offset) override {
    return Exact(InMemory(program_.inputs[input]->dtype, inputs_[input][offset]));
  }
  void Intermediates(int stage, int64_t offset, int64_t step, int count, Scalar* values) override {
    for (int i = 0; i < count; ++i) values[i] = Exact(stages_[stage][offset + i * step]);
  }

 private:
  const TensorProgram& program_;
  std::vector<const double*> inputs_;
  std::vector<const double*> stages_;
};

}  // namespace

void EvaluateAll(const TensorProgram& program, TensorValues& values) {
  WholeTensors source(program, values);
  StageEvaluator evaluator(program, source);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    std::vector<double> elements(stage.tensor->elements);
    for (size_t offset = 0; offset < elements.size(); ++offset) {
      elements[offset] =
          InMemory(stage.tensor->dtype,
                   evaluator.Element(static_cast<int>(s), static_cast<int64_t>(offset)).value);
    }
    std::vector<double>& kept = values[stage.name()] = std::move(elements);
    source.AddStage(kept);
  }
}

}  // namespace heddle::search_space
