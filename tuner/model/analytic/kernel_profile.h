// What one kernel does, as profiler.h counts it from its loops: instructions, memory accesses and
// their address patterns, the memory each loop touches. Nothing here knows a device beyond warps of
// 32 threads, 32-byte sectors and 32 banks of 4 bytes.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_PROFILE_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_PROFILE_H_

#include <vector>

#include "absl/container/inlined_vector.h"
#include "search_space/ir/expr/expr.h"
#include "tuner/model/analytic/sampled_eval.h"

namespace heddle::tuner {

inline constexpr double kSectorBytes = 32;
inline constexpr double kWholeBulkRow = 128;  // bytes
inline constexpr double kBankBytes = 4;
inline constexpr int kBanks = 32;

// Warp instructions by kind, a warp's mean.
struct Instructions {
  double fma = 0;      // float multiply-adds
  double matrix = 0;   // multiplications of matrices
  double add_mul = 0;  // other float additions, multiplications, minima, maxima, selects
  double special = 0;  // executions of the special function unit: exp, rsqrt, division, ...
  double helper = 0;   // float instructions around special functions
  double integer = 0;  // addresses and conditions that are not constant, loop counters
  double global_load = 0, global_store = 0, shared_load = 0, shared_store = 0;
  double async_copy = 0;  // each both a global load and a shared store
  double barrier = 0;     // of the block, and waits for asynchronous copies

  double memory() const {
    return global_load + global_store + shared_load + shared_store + async_copy;
  }
  double total() const {
    return fma + matrix + add_mul + special + helper + integer + memory() + barrier;
  }
};

// One load or store in the kernel's text, with the loops around it.
struct Access {
  search_space::BufferRef buffer;
  search_space::ExprList indices;
  bool store = false;
  bool async = false;        // half of an asynchronous copy
  bool update = false;       // atomic, of global memory
  bool bulk = false;         // of a bulk copy, as if the block's threads shared it
  bool conditional = false;  // not all lanes of all executions take part
  int lanes = 1;             // elements a thread and instruction
  double issued = 0;         // instructions a warp
  double active = 0;         // threads that take part, of the 32, a mean
  double trips = 0;          // executions a thread, conditions aside
  double addresses = 1;      // copies in the text whose addresses differ by more than a constant
  absl::InlinedVector<int, 12> loops;  // around it, outermost first: indices into profile.loops

  // Global: distinct 32-byte sectors an instruction. `ideal` is the bytes asked for in sectors.
  double sectors = 0, ideal_sectors = 0;
  // Shared: passes that the banks need for one instruction, and how few it could be: a quarter of
  // the warp at a time for 16 bytes a thread, half for 8, all for 4.
  double wavefronts = 0, ideal_wavefronts = 0;
  // Global: distinct bytes of the block in one execution, then with each loop from the innermost
  // to the outermost included (kernel_footprint.h).
  absl::InlinedVector<double, 12> footprint;

  double element_bytes() const { return static_cast<double>(search_space::SizeOf(buffer->dtype)); }
  // Bytes that the warp's threads ask for.
  double requested() const { return issued * active * lanes * element_bytes(); }
};

struct LoopProfile {
  int slot;  // its variable
  double extent;
  bool serial;  // else unrolled or a vector's lanes
  bool vector;
  int parent;         // enclosing loop, -1 = none
  double trips = 1;   // iterations in all, those of enclosing loops included
  int lookahead = 0;  // iterations by which a pipeline fetches ahead; 0 = no pipeline
  bool loads_global = false, loads_shared = false, has_barrier = false;  // directly inside
  bool multiplies_adds = false;                                          // somewhere inside
  double work = 0;  // instructions inside, but in no loop inside that repeats; see KernelProfile
  double working_set = 0;  // global bytes that the block touches in one execution of the loop

  // A loop of one iteration is none to a compiler.
  bool repeats() const { return serial && extent > 1; }
  // Leaves the variable one value; the lanes of a vector always go together.
  void Fix(SampledVariables& vars) const {
    if (!vector) vars.Fix(slot);
  }
};

struct KernelProfile {
  // What blocks compute, one each or, of those that stay, `turns` each; a block's threads and
  // warps.
  double blocks = 1, turns = 1, threads = 1, warps = 1;
  double shared_bytes = 0;
  double min_blocks = 0;
  Instructions instructions;
  // Of a warp's matrix instructions, in those of 16 bits that take as long: twice as many of tf32.
  double matrix_flops = 0;
  // Its share of those of its warpgroup, and of what these read from shared memory.
  double warpgroup_flops = 0, warpgroup_bytes = 0;
  double flops = 0;      // float operations of the whole grid, a multiply-add counted as 2
  double code_size = 0;  // instructions in the text, unrolled loops written out
  std::vector<Access> accesses;
  std::vector<LoopProfile> loops;
  bool loads_global = false, loads_shared = false;  // directly in the body, outside serial loops
  // Asynchronous copies that a warp starts in a row: between the multiply-adds of the loop where
  // they are most, and how often.
  double burst = 0, bursts = 0;
  double short_bulk_rows = 0;  // what rows of a block's bulk copies lack of whole ones, in these
  int loop_depth = 0;          // deepest nest of serial loops
  int pipeline_depth = 1;      // buffers of the deepest pipeline

  double live_locals = 0;         // 4-byte registers of local buffers that exist at the same time
  double largest_local = 0;       // of one local buffer: the accumulators of a tile
  double locals_at_barriers = 0;  // of those, the most that live across a barrier
  double work = 0;  // instructions outside loops that repeat, index arithmetic left out
  // 4-byte registers of all local buffers by what is stored to them: loads from shared memory only,
  // loads from global memory only, anything else.
  double fragments = 0, staged = 0, accumulators = 0;

  SampledVariables variables;
  int block_slot = 0;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_PROFILE_H_
