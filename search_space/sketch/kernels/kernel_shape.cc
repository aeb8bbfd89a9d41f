#include "search_space/sketch/kernels/kernel_shape.h"

#include <algorithm>

#include "search_space/schedule/rewrites/reductions/split_operand.h"
#include "search_space/sketch/kernels/reads.h"

namespace heddle::search_space {

bool MakesParts(const ProgramShape& shape, const KernelShape& kernel) {
  return !kernel.reductions.empty() && IsOfParts(shape.stage(kernel.root));
}

bool StoresRows(const ProgramShape& shape, const KernelShape& kernel) {
  const size_t axes =
      shape.stage(kernel.root).axes.size() - (MakesParts(shape, kernel) ? size_t{1} : 0);
  return std::any_of(kernel.reductions.begin(), kernel.reductions.end(),
                     [&](int r) { return shape.stage(r).axes.size() < axes; });
}

double BytesOf(const Buffer& tensor) {
  return static_cast<double>(tensor.elements) * static_cast<double>(SizeOf(tensor.dtype));
}

std::set<int> StagesOf(const ProgramShape& shape, const KernelShape& kernel) {
  std::set<int> others, stages;
  for (const KernelShape& k : shape.kernels) {
    others.insert(k.root);
    for (const int sum : k.beside) {
      if (const auto rest = shape.schedule.OnlyReaderOf(shape.stage(sum).tensor.get())) {
        others.insert(*rest);
      }
    }
  }
  AddStages(shape.schedule, kernel.root, others, stages);
  return stages;
}

Apart OtherReductions(const ProgramShape& shape, const KernelShape& kernel) {
  const auto together = [&](int reduction) {
    return shape.schedule.Together(shape.stage(reduction));
  };
  const auto work = [&](int reduction) {
    double all = 0;
    for (const ScheduledStage* s : together(reduction)) {
      all += static_cast<double>(ExtentOf(s->axes)) * static_cast<double>(ExtentOf(s->reduce_axes));
    }
    return all;
  };
  const auto most = std::max_element(kernel.reductions.begin(), kernel.reductions.end(),
                                     [&](int a, int b) { return work(a) < work(b); });
  Apart apart;
  for (auto r = kernel.reductions.begin(); r != kernel.reductions.end(); ++r) {
    if (r == most) continue;
    for (const ScheduledStage* s : together(*r)) apart.insert(s->name());
  }
  return apart;
}

}  // namespace heddle::search_space
