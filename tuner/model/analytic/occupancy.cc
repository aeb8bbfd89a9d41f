#include "tuner/model/analytic/occupancy.h"

#include <algorithm>
#include <cmath>

#include "tuner/model/analytic/sampled_eval.h"

namespace heddle::tuner {
namespace {

using search_space::Target;

double RoundUp(double v, double unit) { return std::ceil(v / unit) * unit; }

}  // namespace

const char* NameOf(Limiter limiter) {
  static constexpr const char* kNames[] = {"block slots", "threads", "registers", "shared memory"};
  return kNames[static_cast<int>(limiter)];
}

double Occupancy::blocks() const {
  return std::min({by_blocks, by_threads, by_registers, by_shared});
}

Occupancy OccupancyOf(double threads, double registers, double shared_bytes, const Target& t) {
  const double warps = std::ceil(threads / kLanes);
  Occupancy o;
  o.by_blocks = static_cast<double>(t.max_blocks_per_sm);
  o.by_threads = std::floor(static_cast<double>(t.max_threads_per_sm) / (warps * kLanes));
  const double warp_registers = RoundUp(registers * kLanes, 256);
  const double quarter = static_cast<double>(t.registers_per_sm) / kSchedulers;
  const double warps_by_registers = std::floor(quarter / warp_registers) * kSchedulers;
  o.by_registers = std::floor(warps_by_registers / RoundUp(warps, kSchedulers));
  if (warps < kSchedulers) o.by_registers = std::floor(warps_by_registers / warps);
  const double reserved = t.has_async_copy ? 1024 : 0;
  const double block_shared = RoundUp(shared_bytes + reserved, 128);
  o.by_shared = t.shared_bytes_per_sm > 0 && block_shared > 0
                    ? std::floor(static_cast<double>(t.shared_bytes_per_sm) / block_shared)
                    : o.by_blocks;
  const double least = o.blocks();
  o.limiter = least == o.by_blocks      ? Limiter::kBlocks
              : least == o.by_threads   ? Limiter::kThreads
              : least == o.by_registers ? Limiter::kRegisters
                                        : Limiter::kShared;
  return o;
}

}  // namespace heddle::tuner
