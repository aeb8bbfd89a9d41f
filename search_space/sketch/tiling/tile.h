// One tiling: what its decisions must know of one another, and what follows from that.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILE_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILE_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/tiling/tiled_kernel.h"

namespace heddle::search_space {

inline constexpr int64_t kMostTileThreads = 512;  // of a block

// Elements of one data axis, from the block's tile inwards.
struct AxisTile {
  int64_t vthreads = 1, warps = 1, lanes = 1, elements = 1;
  int64_t rounds = 1;  // tiles that one block makes, one after another
  int64_t of_block() const { return vthreads * warps * lanes * elements; }
  int64_t of_thread() const { return vthreads * elements; }
};

struct Tile {
  const TiledKernel& kernel;
  HoleValues values;  // of all holes
  // What each decision says of itself (Decision::Describe); defaults are those of a kernel in which
  // nobody decides it.
  absl::InlinedVector<AxisTile, 6> axes;    // of each data axis
  absl::InlinedVector<int64_t, 6> reduced;  // of each reduction axis, in a block's tile
  bool in_one_tile = false;                 // is the reduction's tile all of it?
  size_t fragment_axis = 0;        // the reduction axis in whose inner loop fragments are read
  int64_t shared_copies = 1;       // of each operand's tile in shared memory
  bool through_registers = false;  // what is fetched waits in registers
  int64_t fragment_copies = 1;     // of each operand's fragment in registers
  int64_t blocks_per_sm = 1;       // that have to fit
  int64_t parts = 1;               // of the reduction, over blocks, at most
  int64_t slices = 1;              // of the reduction, over parts of a block

  int64_t operator[](HoleId hole) const { return values[hole]; }

  // Threads that make a tile, and those of a block: where the reduction is sliced, several make
  // one.
  int64_t TileThreads() const;
  int64_t Threads() const { return TileThreads() * slices; }
  int64_t Accumulators() const;  // of a thread
  int64_t Tiles() const;         // of the result
  int64_t Blocks() const { return Tiles() * NeededParts(); }
  // How much of the shared axis one block reduces: whole tiles, so that only the last block has a
  // tail.
  int64_t PartLength() const;
  // The parts that there are of that length, some fewer than `parts` where these are not even.
  int64_t NeededParts() const;
  // Multiply-adds of one accumulator in a tile of the reduction; times that its operands are read
  // from shared memory.
  int64_t Depth() const;
  int64_t FragmentReads() const;
  // Is the operand's tile the same in all rounds of a block?
  bool IsFetchedOnce(const OperandTile& operand) const;
  // Iterations that are executed over iterations that are needed.
  double Waste() const;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_TILING_TILE_H_
