// Which kernels a program falls into, before any of them is scheduled.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_H_

#include <memory>
#include <vector>

#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// One kernel: the stage it writes, the reductions that are computed inside it, and the elementwise
// stages that only those read and that can be kept in shared memory instead of being inlined.
struct KernelShape {
  int root = -1;  // indices into the schedule's stages
  std::vector<int> reductions;
  std::vector<int> stageable;
  // The whole program, nothing inlined: what lies between the reductions is the plan's to place.
  bool fused = false;
};

// The decisions that every sketch shares (what is inlined) and the kernels that remain.
struct ProgramShape {
  std::vector<Step> steps;
  Schedule schedule;  // with `steps` applied
  std::vector<KernelShape> kernels;

  const ScheduledStage& stage(int i) const { return schedule.stages()[static_cast<size_t>(i)]; }
};
// `algorithm` (algorithms.h) comes first among the steps.
ProgramShape FindKernels(std::shared_ptr<const TensorProgram> program,
                         const std::vector<Step>& algorithm);
// The program as a single kernel, for plans that fuse several reductions; without kernels when its
// last stage is not its only output.
ProgramShape FuseKernels(std::shared_ptr<const TensorProgram> program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_H_
