#include "search_space/sketch/kernels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"

namespace heddle::search_space {
namespace {

std::vector<const Buffer*> ReadsOf(const ScheduledStage& stage) {
  std::vector<const Buffer*> reads;
  Visit(stage.body, [&](const Expr& node) {
    if (node->op != Op::kLoad) return;
    if (std::find(reads.begin(), reads.end(), node->buffer.get()) == reads.end()) {
      reads.push_back(node->buffer.get());
    }
  });
  return reads;
}

// Does `reader` read `producer` only at its own element?
bool ReadsElementwise(const ScheduledStage& reader, const ScheduledStage& producer) {
  bool ok = reader.axes.size() == producer.axes.size();
  Visit(reader.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || node->buffer != producer.tensor) return;
    for (size_t i = 0; ok && i < node->args.size(); ++i) {
      ok = node->args[i]->op == Op::kVar && node->args[i]->var == reader.axes[i];
    }
  });
  return ok;
}

class ShapeFinder {
 public:
  explicit ShapeFinder(ProgramShape& shape) : shape_(shape), schedule_(shape.schedule) {}

  void Run() {
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      if (ShouldInline(static_cast<int>(i))) {
        const Step step = ComputeInline{schedule_.stages()[i].name()};
        if (schedule_.Apply(step).ok()) shape_.steps.push_back(step);
      }
    }
    FindTooLarge();
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      const ScheduledStage& s = schedule_.stages()[i];
      if (s.inlined || s.is_reduction() || IsStageable(static_cast<int>(i))) continue;
      shape_.kernels.push_back(MakeKernel(static_cast<int>(i)));
    }
  }

 private:
  const ScheduledStage& stage(int i) const { return shape_.stage(i); }

  bool ReadsReduction(const ScheduledStage& s) const {
    for (const Buffer* b : ReadsOf(s)) {
      const int producer = schedule_.FindStage(b);
      if (producer >= 0 && stage(producer).is_reduction()) return true;
    }
    return false;
  }

  // Elementwise stages disappear into their readers, except those that carry a reduction out of its
  // kernel and those that only one reduction reads, which a plan may want in shared memory.
  bool ShouldInline(int i) const {
    const ScheduledStage& s = stage(i);
    if (s.is_reduction() || s.is_output || s.materialized) return false;
    const std::vector<int> readers = schedule_.ReadersOf(s.tensor.get());
    if (!ReadsReduction(s)) return !IsStageable(i);
    return readers.size() == 1 && !stage(readers[0]).is_reduction() &&
           ReadsElementwise(stage(readers[0]), s);
  }

  // Stages that a plan could not inline into their reduction, should it not stage them: they are
  // kernels of their own.
  void FindTooLarge() {
    Schedule inlined = schedule_;
    for (size_t i = 0; i < inlined.stages().size(); ++i) {
      if (!IsStageable(static_cast<int>(i))) continue;
      if (!inlined.Apply(Step(ComputeInline{inlined.stages()[i].name()})).ok()) {
        too_large_.insert(static_cast<int>(i));
      }
    }
  }

  bool IsStageable(int i) const {
    const ScheduledStage& s = stage(i);
    if (too_large_.contains(i)) return false;
    if (s.is_reduction() || s.is_output || s.materialized || ReadsReduction(s)) return false;
    const std::vector<int> readers = schedule_.ReadersOf(s.tensor.get());
    return readers.size() == 1 && stage(readers[0]).is_reduction();
  }

  KernelShape MakeKernel(int root) const {
    KernelShape kernel;
    kernel.root = root;
    for (const Buffer* b : ReadsOf(stage(root))) {
      const int r = schedule_.FindStage(b);
      if (r < 0 || !stage(r).is_reduction()) continue;
      kernel.reductions.push_back(r);
      for (const Buffer* input : ReadsOf(stage(r))) {
        const int p = schedule_.FindStage(input);
        if (p >= 0 && IsStageable(p)) kernel.stageable.push_back(p);
      }
    }
    return kernel;
  }

  ProgramShape& shape_;
  Schedule& schedule_;
  absl::flat_hash_set<int> too_large_;
};

}  // namespace

ProgramShape FindKernels(std::shared_ptr<const TensorProgram> program,
                         const std::vector<Step>& algorithm) {
  ProgramShape shape{algorithm, Schedule(std::move(program)), {}};
  const absl::Status applied = shape.schedule.Apply(algorithm);
  HEDDLE_CHECK(applied.ok(), "an algorithm does not apply: " + std::string(applied.message()));
  ShapeFinder(shape).Run();
  return shape;
}

ProgramShape FuseKernels(std::shared_ptr<const TensorProgram> program) {
  ProgramShape shape{{}, Schedule(std::move(program)), {}};
  const auto& stages = shape.schedule.stages();
  const auto outputs = std::count_if(stages.begin(), stages.end(),
                                     [](const ScheduledStage& s) { return s.is_output; });
  if (outputs != 1 || !stages.back().is_output) return shape;
  KernelShape kernel;
  kernel.root = static_cast<int>(stages.size()) - 1;
  kernel.fused = true;
  for (int i = 0; i < kernel.root; ++i) {
    if (stages[static_cast<size_t>(i)].is_reduction()) kernel.reductions.push_back(i);
  }
  shape.kernels.push_back(std::move(kernel));
  return shape;
}

}  // namespace heddle::search_space
