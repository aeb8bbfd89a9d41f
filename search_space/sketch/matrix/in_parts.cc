#include "search_space/sketch/matrix/in_parts.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <variant>

#include "search_space/ir/expr/queries.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/matrix/matrix_kernel.h"

namespace heddle::search_space {
namespace {

// Of what moving a program's inputs and outputs takes, the share that a product in float32 must
// take for another way to compute it to be worth trials.
constexpr double kLeastShare = 0.25;

bool IsWorthSplitting(const std::shared_ptr<const TensorProgram>& program, const Step& step,
                      const Target& target) {
  const Stage* const sum = program->FindStage(std::get<SplitOperand>(step).stage);
  const auto moved = static_cast<double>(program->IoBytes());
  if (sum->Flops() * target.memory_gbs < kLeastShare * moved * target.peak_gflops) return false;
  const InParts parts = FindInParts(program, {step}, true);
  const std::vector<KernelShape>& kernels = parts.shape->kernels;
  return std::any_of(kernels.begin(), kernels.end(), [&](const KernelShape& kernel) {
    return MultipliesParts(*parts.shape, kernel) &&
           MatrixKernel::Find(*parts.shape, kernel, target, false).has_value();
  });
}

}  // namespace

InParts FindInParts(const std::shared_ptr<const TensorProgram>& program,
                    const std::vector<Step>& steps, bool stored) {
  InParts found;
  const auto find = [&] {
    found.shape =
        std::make_shared<const ProgramShape>(FindKernels(program, steps, found.partition));
  };
  find();
  if (stored) {
    for (const ScheduledStage& s : found.shape->schedule.stages()) {
      if (IsOfParts(s)) found.partition.stored.insert(s.name());
    }
    find();
  }
  for (const KernelShape& kernel : found.shape->kernels) {
    if (kernel.reductions.size() > 1) {
      found.partition.apart.merge(OtherReductions(*found.shape, kernel));
    }
  }
  if (!found.partition.apart.empty()) find();
  return found;
}

bool MultipliesParts(const ProgramShape& shape, const KernelShape& kernel) {
  return std::any_of(kernel.reductions.begin(), kernel.reductions.end(), [&](int reduction) {
    const std::vector<Expr> loads = LoadsIn(shape.stage(reduction).body);
    return std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
      const int stage = shape.schedule.FindStage(load->buffer.get());
      return stage >= 0 && IsOfParts(shape.stage(stage));
    });
  });
}

std::vector<Step> WorthSplitting(const std::shared_ptr<const TensorProgram>& program,
                                 const std::vector<Step>& steps, const Target& target) {
  std::vector<Step> worth;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(worth),
               [&](const Step& step) { return IsWorthSplitting(program, step, target); });
  return worth;
}

}  // namespace heddle::search_space
