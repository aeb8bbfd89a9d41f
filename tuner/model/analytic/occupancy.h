// How many blocks of a kernel run on a multiprocessor at the same time.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_OCCUPANCY_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_OCCUPANCY_H_

#include <cstdint>

#include "search_space/ir/target.h"

namespace heddle::tuner {

// Of a multiprocessor; each issues one instruction a cycle.
inline constexpr double kSchedulers = 4;

enum class Limiter : uint8_t { kBlocks, kThreads, kRegisters, kShared };
const char* NameOf(Limiter limiter);  // "block slots"

// Blocks of a kernel that fit on a multiprocessor at the same time. Source: CUDA's occupancy
// calculator (cuda_occupancy.h): registers are given to warps in units of 256, a quarter of the
// multiprocessor at a time; shared memory in units of 128 bytes, and 1 KiB of it a block goes to
// the system since compute capability 8.0.
struct Occupancy {
  double by_blocks = 0, by_threads = 0, by_registers = 0, by_shared = 0;  // blocks
  Limiter limiter = Limiter::kBlocks;

  double blocks() const;  // the least of them; 0 = the kernel cannot be launched
};
Occupancy OccupancyOf(double threads, double registers, double shared_bytes,
                      const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_OCCUPANCY_H_
