#include "search_space/sketch/kernels/row_statistics.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "search_space/sketch/kernels/compute_together.h"
#include "search_space/sketch/kernels/reads.h"

namespace heddle::search_space {
namespace {

// Rows that a group of threads has to itself.
constexpr int64_t kShortestRowOfStatistics = 32;

// Does the kernel make rows of what is stored, element by element?
bool MakesElements(const ProgramShape& shape, const KernelShape& kernel) {
  const ScheduledStage& root = shape.stage(kernel.root);
  return kernel.reductions.empty() && kernel.beside.empty() && !root.is_reduction() &&
         !shape.schedule.HasCompanions(root) && root.axes.size() > 1 &&
         root.axes.back()->extent >= kShortestRowOfStatistics;
}

// Has `stage` the axes of `rows` but for the last one?
bool HasAxesOfRows(const ScheduledStage& stage, const ScheduledStage& rows) {
  return stage.axes.size() + 1 == rows.axes.size() &&
         std::equal(stage.axes.begin(), stage.axes.end(), rows.axes.begin(),
                    [](const Var& a, const Var& b) { return a->extent == b->extent; });
}

// Does the kernel reduce, along the last axis of `rows` alone, something that these read, too?
bool ReducesRows(const ProgramShape& shape, const KernelShape& kernel, const ScheduledStage& rows) {
  const ScheduledStage& root = shape.stage(kernel.root);
  if (root.is_reduction() || kernel.reductions.empty() || !kernel.beside.empty() ||
      shape.schedule.HasCompanions(root) || !HasAxesOfRows(root, rows)) {
    return false;
  }
  bool reads_rows = false;
  const Tensors elements = ReadsOf(rows);
  for (const int r : kernel.reductions) {
    const ScheduledStage& reduction = shape.stage(r);
    const bool along = HasAxesOfRows(reduction, rows) && reduction.reduce_axes.size() == 1 &&
                       reduction.reduce_axes[0]->extent == rows.axes.back()->extent;
    if (!along || shape.schedule.HasCompanions(reduction)) return false;
    for (const Buffer* read : ReadsOf(reduction)) {
      reads_rows =
          reads_rows || (read->elements == rows.tensor->elements && Contains(elements, read));
    }
  }
  // Neither waits for the other.
  return reads_rows && !Contains(AllReadsOf(shape.schedule, root), rows.tensor.get()) &&
         !Contains(AllReadsOf(shape.schedule, rows), root.tensor.get());
}

// Has the kernels, which are those of `before`, name the stages where these are now.
void Renumber(const ProgramShape& before, ProgramShape& shape) {
  const auto number = [&](int s) { return shape.schedule.FindStage(before.stage(s).tensor.get()); };
  for (KernelShape& kernel : shape.kernels) {
    kernel.root = number(kernel.root);
    for (std::vector<int>* stages : {&kernel.reductions, &kernel.stageable, &kernel.beside}) {
      std::transform(stages->begin(), stages->end(), stages->begin(), number);
    }
  }
}

}  // namespace

std::optional<ProgramShape> WithRowStatistics(const ProgramShape& shape) {
  for (size_t k = 0; k < shape.kernels.size(); ++k) {
    if (!MakesElements(shape, shape.kernels[k])) continue;
    const ScheduledStage& rows = shape.stage(shape.kernels[k].root);
    for (size_t other = 0; other < shape.kernels.size(); ++other) {
      if (other == k || !ReducesRows(shape, shape.kernels[other], rows)) continue;
      ProgramShape with = shape;
      const BufferRef statistic = shape.stage(shape.kernels[other].root).tensor;
      if (!ComputeTogether(with.schedule, with.steps, statistic, rows.tensor)) continue;
      Renumber(shape, with);
      with.kernels[k].reductions = with.kernels[other].reductions;
      with.kernels[k].fused = true;
      with.kernels.erase(with.kernels.begin() + static_cast<std::ptrdiff_t>(other));
      return WithRowStatistics(with).value_or(with);
    }
  }
  return std::nullopt;
}

}  // namespace heddle::search_space
