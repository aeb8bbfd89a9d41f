// The ways to divide a program among kernels that may be worth trials, by a closed-form estimate.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_PARTITION_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_PARTITION_H_

#include <memory>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/kernels/kernels.h"

namespace heddle::search_space {

// A program's kernels as a partition makes them.
struct Partitioned {
  Partition partition;
  bool together = false;  // by FindKernelsTogether?
  std::shared_ptr<const ProgramShape> shape;
  double us = 0;  // what EstimateUs says (kernel_estimate.h)
};

// Does a stage compute what costs more than to load it for each of many elements or terms that read
// the same, as angles that all heads are turned by, or gains of documents that are compared in
// pairs; or one elementwise kernel stages at several places?
bool ComputesAgain(const ProgramShape& definition);

// Are there several kernels, or one that computes again, and are they few and their definitions
// short enough that a partition costs a fraction of a millisecond to look at? Others stay as they
// are defined.
bool IsDivisible(const ProgramShape& definition);

// From each of `starts` one decision after another is taken that saves most: to store an
// elementwise stage, which tiles of products would compute again and again; to compute kernels
// within the one that reads them, statistics along rows or a chain; to keep a reduction apart. Of
// all that was looked at, the few that take clearly less than the starts, the best first.
std::vector<Partitioned> PartitionsOf(const std::shared_ptr<const TensorProgram>& program,
                                      const std::vector<Partitioned>& starts, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_PARTITION_H_
