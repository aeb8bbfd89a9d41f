// Programs whose reductions read one another's results along the same rows, so that one block can
// make some rows of all of them: two products with a softmax between, a product of normalised rows.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_CHAIN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_CHAIN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "search_space/ir/target.h"
#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/kernels/schedule_writer.h"
#include "search_space/sketch/tiling/tiled_kernel.h"

namespace heddle::search_space {

// A reduction that others read, and the elementwise stage through which they do. Of the rows of a
// block it is whole in shared memory.
struct ChainLink {
  StageRef result, reduction;
  // Axes of the result that are no rows' (`columns`), and the one that the block makes several
  // rows of; a statistic, such as a maximum, has no columns.
  std::vector<size_t> columns;
  std::optional<size_t> row;
  // How the reduction is tiled; unset for a statistic, whose terms threads share out.
  std::optional<TiledKernel> tiled;
  // Tensors that a statistic reads along its last reduction axis and nowhere else, so that wide
  // accesses can read runs of them.
  std::vector<BufferRef> runs;
  bool is_masked = false;  // may terms of it be left out (skip_masked)?
  int64_t terms = 1;       // of a statistic
  int64_t vector = 1;      // the widest run of these
};

struct Chain {
  std::vector<BufferRef> inlined;  // the elementwise stages between
  std::vector<ChainLink> links;    // in definition order
  TiledKernel root;                // the last reduction and its reader
  bool is_masked = false;          // may tiles of that be left out?
  std::optional<size_t> row;       // the root's axis that a block makes several rows of, if any
  std::vector<size_t> columns;     // its axes that are no rows'
};

// nullopt unless the kernel, in which nothing is inlined, is of a reduction that uses its operands
// more than once, reads results of other reductions, and shares with all of them the axes of rows.
std::optional<Chain> FindChain(const ProgramShape& shape, const KernelShape& kernel,
                               const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_CHAIN_H_
