// What a kernel of a program computes, before it is scheduled, and questions about that.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_SHAPE_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_SHAPE_H_

#include <set>
#include <string>
#include <vector>

#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// One kernel: the stage whose loops it is, the reductions that are computed inside it, and the
// elementwise stages that only those read and that can be kept in shared memory instead of being
// inlined. Stages that are computed with others (compute_with) are not listed: their leaders are.
struct KernelShape {
  int root = -1;  // indices into the schedule's stages
  std::vector<int> reductions;
  std::vector<int> stageable;
  // Reductions over the rows of the root that are computed beside it (reduce_beside), and what is
  // left of them in a kernel of their own each, which the plan makes, too.
  std::vector<int> beside;
  // Of all that it computes nothing is inlined: what lies between the reductions is the plan's to
  // place.
  bool fused = false;
};

// What a kernel of a GPU costs beside its work, about.
inline constexpr double kLaunchUs = 1.5;
double BytesOf(const Buffer& tensor);

// The decisions that every sketch shares (what is inlined) and the kernels that remain.
struct ProgramShape {
  std::vector<Step> steps;
  Schedule schedule;  // with `steps` applied
  std::vector<KernelShape> kernels;

  const ScheduledStage& stage(int i) const { return schedule.stage(i); }
};
// Names of reductions, each to be the only one of a kernel that stores its result.
using Apart = std::set<std::string>;

// Does the kernel store its reductions' results, or what is computed of them, in parts
// (split_operand.h)? Then its root has an axis in front of theirs.
bool MakesParts(const ProgramShape& shape, const KernelShape& kernel);

// Has its root axes that its reductions have not, as what is made of rows and their reductions?
bool StoresRows(const ProgramShape& shape, const KernelShape& kernel);

// The stages that a kernel computes, but for what is computed together with these: its root and
// what that reads, up to other kernels' roots.
std::set<int> StagesOf(const ProgramShape& shape, const KernelShape& kernel);

// All of a kernel's reductions but the one of most work, with what is computed together with it.
Apart OtherReductions(const ProgramShape& shape, const KernelShape& kernel);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_SHAPE_H_
