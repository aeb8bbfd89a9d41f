// Which kernels a program falls into, before any of them is scheduled.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNELS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNELS_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernel_shape.h"

namespace heddle::search_space {

// What is decided about a program's kernels beside what always is; names of stages.
struct Partition {
  Apart apart;
  // Elementwise stages with kernels of their own, instead of being computed again in each reader.
  std::set<std::string> stored;
  // Roots of kernels that are computed in the one kernel that reads them.
  std::set<std::string> merged;
  // Roots of kernels of rows' reductions that are computed in another one of the same rows, which
  // reads them, and stored by that for all others that do.
  std::set<std::string> kept;

  auto operator<=>(const Partition&) const = default;
};

// `algorithm` (algorithms.h) comes first among the steps. Without kernels where something is to be
// merged that several kernels read, or none.
ProgramShape FindKernels(std::shared_ptr<const TensorProgram> program,
                         const std::vector<Step>& algorithm, const Partition& partition = {});
// The program as a single kernel, for plans that fuse several reductions; without kernels when its
// last stage is not its only output.
ProgramShape FuseKernels(std::shared_ptr<const TensorProgram> program,
                         const std::vector<Step>& algorithm);

// The same two, with what can be computed together in the same loops: outputs of which one has all
// axes of the other and that read something in common, then the reductions over the same axes of
// each kernel. An output that others read is computed again in these, and a reduction is in the
// kernel of its reader also where an axis of extent 1 is read at 0. The second is without kernels
// where nothing goes together; of `ends`, names of stages, it stores the results, and what reads
// these has kernels of its own. `joins_rows`: reductions of rows that are outputs, such as scales,
// are in the kernel of what reads them for each element of these rows.
ProgramShape FindKernelsTogether(std::shared_ptr<const TensorProgram> program,
                                 const Partition& partition = {},
                                 const std::vector<Step>& algorithm = {}, bool joins_rows = true);
ProgramShape FuseKernelsTogether(std::shared_ptr<const TensorProgram> program,
                                 const std::vector<Step>& algorithm = {},
                                 const std::set<std::string>& ends = {});

// The outputs that are made of the same rows as one kernel, with reductions over these rows to be
// computed beside them, such as the gradients of a norm's weights beside that of its input. Without
// kernels where there is no such reduction, or the other outputs do not go together.
ProgramShape FuseBeside(std::shared_ptr<const TensorProgram> program);

// The program as a single kernel for chains of reductions (chain.h), whose outputs beside the last
// one, such as the statistics of a softmax that its gradient needs, are computed with that one.
ProgramShape FuseChain(const std::shared_ptr<const TensorProgram>& program,
                       const std::vector<Step>& algorithm);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNELS_H_
