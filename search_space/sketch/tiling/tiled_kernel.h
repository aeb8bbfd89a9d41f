// The kernel that a tiling is of: a reduction, the elementwise stage that reads it, and how the
// tensors that it reads depend on their axes.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILED_KERNEL_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILED_KERNEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "search_space/ir/target.h"
#include "search_space/sketch/kernels.h"
#include "search_space/sketch/schedule_writer.h"

namespace heddle::search_space {

struct TiledAxis {
  std::string name;
  int64_t extent;
  // Every operand is read along it, and it is not the one that lies innermost: its elements have
  // nothing in common.
  bool is_batch = false;
  // A reduction axis that is fetched whole.
  bool is_window() const;
};

// index = sum of stride * axis: how a dimension of an operand depends on the axes.
struct IndexTerm {
  size_t axis;  // data axes first, then reduction axes
  int64_t stride;
};

// What the reduction reads.
struct Operand {
  BufferRef tensor;
  bool is_stage;  // an elementwise stage computed into shared memory, else a tensor copied
  std::vector<std::vector<IndexTerm>> dims;
  std::vector<bool> unit;  // the dimension is exactly one axis
  int64_t row_extent = 1;  // elements in a row in memory
  size_t inner = 0;        // dimension that lies innermost in shared memory

  bool is_transposed() const { return inner + 1 != dims.size(); }
};

struct TiledKernel {
  Target target;
  StageRef root, reduction;
  std::vector<TiledAxis> axes, reduce_axes;
  std::vector<Operand> operands;
  int64_t results = 1;  // the reduction's, and those of what is computed with it

  size_t shared_axis =
      0;  // the reduction axis that blocks, or parts of one, may share: the longest

  absl::Status Refuse(const std::string& why) const;  // ResourceExhausted, naming the kernel
  absl::Status TooMany(int64_t count, const char* what, int64_t most) const;
};

// nullopt unless `kernel` has one reduction, or several computed together, over at least two
// factors, every index affine, each tensor read once, and some axis of the result along which an
// operand is reused.
std::optional<TiledKernel> FindTiledKernel(const ProgramShape& shape, const KernelShape& kernel,
                                           const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILED_KERNEL_H_
