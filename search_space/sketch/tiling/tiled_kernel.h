// The kernel that a tiling is of: a reduction, the elementwise stage that reads it, and how its
// operands depend on their axes.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILED_KERNEL_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILED_KERNEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "search_space/ir/target.h"
#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/kernels/schedule_writer.h"

namespace heddle::search_space {

struct TiledAxis {
  std::string name;
  int64_t extent;
  // Every operand is read along it, and it is not the one that lies innermost: its elements have
  // nothing in common.
  bool is_batch = false;
  // A reduction axis that moves along a data axis in an index, as x + e of a convolution does.
  bool moves = false;
  // A reduction axis that is fetched whole mostly: a short one.
  bool is_window() const;
};

// index = sum of stride * axis: how a dimension of an operand depends on the axes.
struct IndexTerm {
  size_t axis;  // data axes first, then reduction axes
  int64_t stride;
};

// How an operand's tile lies in shared memory.
struct OperandTile {
  // As what? A hull: all elements of what the operand loads between the first and the last that
  // are read, so that neighbours share a window's halo. Or gathered (gather_read): an element for
  // each iteration of the axes on which the operand depends, computed as it is fetched.
  bool is_gathered = false;
  std::vector<std::vector<IndexTerm>> dims;
  std::vector<bool> unit;  // the dimension is exactly one axis
  int64_t row_extent = 1;  // elements in a row in memory
  size_t inner = 0;        // dimension that lies innermost in shared memory

  bool is_transposed() const { return inner + 1 != dims.size(); }
};

// What the reduction reads in tiles (operands.h).
struct Operand {
  std::string name;  // of a tensor that it reads, told apart
  size_t number;     // among the reduction's operands
  DType dtype;
  BufferRef tensor;                // that it loads, if it may be a hull
  bool is_stage;                   // an elementwise stage computed into shared memory, else copied
  std::vector<BufferRef> inlined;  // the elementwise stages that are inlined if it is gathered
  std::vector<OperandTile> tiles;  // the ways to have it there: one or two
};

// What the reduction reads that is the same in all its terms: of these data axes.
struct HeldOperand {
  size_t number;
  std::vector<size_t> axes;
  std::vector<BufferRef> inlined;
};

struct TiledKernel {
  Target target;
  StageRef root, reduction;
  std::vector<TiledAxis> axes, reduce_axes;
  std::vector<Operand> operands;
  std::vector<HeldOperand> held;
  // Elementwise stages that nothing fetches or holds, so that they are inlined: what they say is
  // the same for all elements, or is read where reductions are computed together.
  std::vector<BufferRef> inlined;
  int64_t results = 1;  // the reduction's, and those of what is computed with it
  // Does the root store parts of the results (MakesParts)? `axes` are those of the results.
  bool makes_parts = false;
  bool reuses = false;  // is an operand the same along some axis of the result?
  // Are its threads as many as something else in the kernel needs? Then slices may be worth it
  // however many blocks there are.
  bool has_other_work = false;

  size_t shared_axis =
      0;  // the reduction axis that blocks, or parts of one, may share: the longest

  absl::Status Refuse(const std::string& why) const;  // ResourceExhausted, naming the kernel
  absl::Status TooMany(int64_t count, const char* what, int64_t most) const;
};

// nullopt unless `kernel` has one reduction, with more than one result and a few operands, or
// several that are computed together, each of whose tensors is read in one place, at affine
// indices. Where it stores parts only if `may_make_parts`.
std::optional<TiledKernel> FindTiledKernel(const ProgramShape& shape, const KernelShape& kernel,
                                           const Target& target, bool may_make_parts = false);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILED_KERNEL_H_
