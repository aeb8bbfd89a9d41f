#include "tuner/model/analytic/kernel_cost.h"

#include <algorithm>
#include <cmath>

#include "tuner/model/analytic/kernel_footprint.h"
#include "tuner/model/analytic/processor_cost.h"
#include "tuner/model/analytic/profiler.h"
#include "tuner/model/analytic/register_estimate.h"

namespace heddle::tuner {
namespace {

using search_space::Scope;
using search_space::Target;

constexpr double kL1Sectors = 4;         // a multiprocessor and cycle, from the first-level cache
constexpr double kL2BytesPerCycle = 40;  // a multiprocessor's share of the L2's bandwidth
constexpr double kL1Share = 0.8;         // of the cache that a working set may fill and still stay
constexpr double kL2Share = 0.6;
constexpr double kSharedBytesPerCycle = 128;
// Of what matrix instructions of warpgroups can do, those of warps can so much on devices that have
// both (arXiv 2501.12084: 62.9 % of the peak).
constexpr double kWarpShare = 0.63;
constexpr double kSpecialPerCycle = 16;  // special function results a multiprocessor and cycle
constexpr double kSharedLatency = 30, kGlobalLatency = 600, kBarrierLatency = 30;  // cycles
// The start alone: that a kernel then waits for its first loads is the latency's. The estimate of
// sketches has no such term, and takes 1.5 for both (search_space/sketch/kernels/kernel_shape.h).
constexpr double kLaunchUs = 1.0;
// Cycles of a multiprocessor's share of the L2 for each sector in which a warp updates elements,
// and for each element (docs/notebook.md, "Terms that name their place").
constexpr double kUpdatedSectorCycles = 3.1, kUpdateCycles = 0.6;
// Asynchronous copies of a warp in a row that keep nobody waiting, and the cycles that each further
// one of every warp keeps the block's reads waiting (docs/notebook.md, interleaved copies).
constexpr double kShortBurst = 4, kBurstCycles = 3.5;
// Bulk copies take so long for each row of a box, however short it is; the time of whole rows is
// that of the memory they come from (docs/notebook.md, "Short rows of bulk copies").
constexpr double kBulkRowCycles = 2;

void CountTraffic(KernelProfile& p, const Target& t, KernelCost& c) {
  const auto l1_bytes = kL1Share * std::max(0.0, static_cast<double>(t.shared_bytes_per_sm) -
                                                     c.resident_blocks * p.shared_bytes);
  const double total_blocks = p.blocks;
  const double wave_blocks =
      std::min(p.blocks, c.resident_blocks * static_cast<double>(t.sm_count));
  double wave_unique = 0;
  absl::flat_hash_map<const search_space::Buffer*, double> unique;
  for (const Access& a : p.accesses) {
    if (a.buffer->scope != Scope::kGlobal || a.issued == 0) continue;
    c.requested_bytes += a.requested() * p.warps * total_blocks;
    c.l1_bytes += a.issued * a.sectors * kSectorBytes * p.warps * total_blocks;
    // Sectors that are touched but not asked for count wherever the line travels.
    const double waste = a.sectors / std::max(a.ideal_sectors, 1e-9);
    const double per_execution = a.issued * p.warps / std::max(a.trips, 1.0);
    double bytes =
        std::min(a.footprint[0] * std::min(waste, 8.0), per_execution * a.sectors * kSectorBytes);
    if (a.store) {
      bytes = a.issued * a.sectors * kSectorBytes * p.warps;
    } else {
      for (size_t i = a.loops.size(); i-- > 0;) {
        const LoopProfile& loop = p.loops[static_cast<size_t>(a.loops[i])];
        const size_t level = a.loops.size() - i;
        const bool stays = loop.working_set * c.resident_blocks <= l1_bytes;
        bytes = stays ? std::min(bytes * loop.extent, a.footprint[level]) : bytes * loop.extent;
      }
    }
    c.l2_bytes += bytes * total_blocks;
    wave_unique += FootprintOf(p, a, wave_blocks);
    double& most = unique[a.buffer.get()];
    most = std::max(most, FootprintOf(p, a, total_blocks));
  }
  for (const auto& [buffer, bytes] : unique) c.unique_bytes += bytes;
  // What the blocks that run together touch has to stay for those of the next wave to share it.
  // Among themselves they share it in any case, as they walk it together.
  const bool stays =
      std::min(wave_unique, c.unique_bytes) <= kL2Share * static_cast<double>(t.l2_bytes);
  const double waves = wave_blocks > 0 ? total_blocks / wave_blocks : 1;
  c.dram_bytes =
      stays ? c.unique_bytes : std::max(c.unique_bytes, std::min(c.l2_bytes, waves * wave_unique));
}

double SharedCycles(const KernelProfile& p) {
  double cycles = 0;
  for (const Access& a : p.accesses) {
    if (a.buffer->scope == Scope::kShared) cycles += a.issued * a.wavefronts;
  }
  return cycles + p.warpgroup_bytes / kSharedBytesPerCycle;
}

// Cycles that the L2 needs for the atomic updates of one warp.
double UpdateCycles(const KernelProfile& p) {
  double cycles = 0;
  for (const Access& a : p.accesses) {
    if (!a.update) continue;
    cycles +=
        a.issued * std::max(a.sectors * kUpdatedSectorCycles, a.active * a.lanes * kUpdateCycles);
  }
  return cycles;
}

// Cycles that one block waits, alone on its multiprocessor.
double LatencyCycles(const KernelProfile& p, double warp_issue_cycles) {
  double cycles = (p.loads_global ? kGlobalLatency : 0) + (p.loads_shared ? kSharedLatency : 0);
  for (const LoopProfile& l : p.loops) {
    if (!l.serial) continue;
    if (l.loads_shared) cycles += l.trips * kSharedLatency;
    if (l.has_barrier) cycles += l.trips * kBarrierLatency;
    if (!l.loads_global) continue;
    const double iteration = warp_issue_cycles / l.trips;
    cycles += l.trips * std::max(0.0, kGlobalLatency - l.lookahead * iteration);
  }
  return cycles;
}

void EstimateTimes(const KernelProfile& p, const Target& t, KernelCost& c) {
  const double sms = static_cast<double>(t.sm_count);
  const double cycle_us = 1e-3 / t.clock_ghz;
  const double lanes = t.peak_gflops > 0 ? t.peak_gflops / (2 * sms * t.clock_ghz) : double{kLanes};
  const double warps = p.warps * c.busiest_blocks;
  const Instructions& n = p.instructions;
  c.terms[Term::kFma] = warps * (n.fma + n.add_mul) * kLanes / lanes * cycle_us;
  if (p.matrix_flops + p.warpgroup_flops > 0 && t.peak_gflops > 0) {
    const bool both = search_space::ShapeOf(search_space::MatrixInstruction::kM64N8K16).IsOn(t);
    const double flops = p.matrix_flops / (both ? kWarpShare : 1) + p.warpgroup_flops;
    c.terms[Term::kFma] += warps * flops * sms / search_space::MatrixGflops(t) * 1e-3;
  }
  c.terms[Term::kDram] = t.memory_gbs > 0 ? c.dram_bytes / t.memory_gbs * 1e-3 : 0;
  if (t.processor) {
    c.terms += ProcessorTerms(p, t);
    c.total_us = TotalUs(c.terms, true);
    return;
  }
  c.terms[Term::kIssue] = warps * n.total() / kSchedulers * cycle_us;
  c.terms[Term::kSpecial] = warps * n.special * kLanes / kSpecialPerCycle * cycle_us;
  c.terms[Term::kShared] = warps * SharedCycles(p) * cycle_us;
  const double share = c.busiest_blocks / p.blocks;
  c.terms[Term::kL1] = c.l1_bytes * share / kSectorBytes / kL1Sectors * cycle_us;
  c.terms[Term::kL2] = c.l2_bytes * share / kL2BytesPerCycle * cycle_us;
  c.terms[Term::kLatency] =
      c.waves * (LatencyCycles(p, n.total() * p.warps / kSchedulers) + n.total()) * cycle_us;
  c.terms[Term::kBurst] =
      c.waves * p.bursts * std::max(0.0, p.burst - kShortBurst) * p.warps * kBurstCycles * cycle_us;
  c.terms[Term::kBulkRows] = c.busiest_blocks * p.short_bulk_rows * kBulkRowCycles * cycle_us;
  c.terms[Term::kUpdate] = warps * UpdateCycles(p) * cycle_us;
  c.terms[Term::kLaunch] = kLaunchUs;
  const double warps_per_scheduler = std::max(0.25, c.resident_blocks * p.warps / kSchedulers);
  c.total_us = TotalUs(c.terms, false, warps_per_scheduler);
}

}  // namespace

KernelCost CostOf(KernelProfile& p, const Target& t) {
  KernelCost c;
  c.register_demand = RegisterDemand(p, t);
  c.registers = std::min(c.register_demand, RegisterLimit(p, t));
  c.spilled = c.register_demand - c.registers;
  c.occupancy = OccupancyOf(p.threads, c.registers, p.shared_bytes, t);
  c.busiest_blocks = std::ceil(p.blocks / static_cast<double>(t.sm_count));
  // Of those that stay no more are launched than run at a time.
  const double launched = std::ceil(p.blocks / p.turns / static_cast<double>(t.sm_count));
  c.resident_blocks = std::clamp(c.occupancy.blocks(), 1.0, std::min(c.busiest_blocks, launched));
  c.waves = std::ceil(c.busiest_blocks / c.resident_blocks);
  CountTraffic(p, t, c);
  EstimateTimes(p, t, c);
  return c;
}

Terms TermsOf(const search_space::Program& program, const Target& target) {
  Terms terms;
  for (const search_space::Kernel& kernel : program.kernels) {
    KernelProfile profile = ProfileOf(kernel);
    terms += CostOf(profile, target).terms;
  }
  return terms;
}

}  // namespace heddle::tuner
