#include "tuner/model/analytic/processor_cost.h"

#include <algorithm>
#include <cmath>

namespace heddle::tuner {
namespace {

// In cycles a thread unless said otherwise. Fitted to 1,569 random points of ten workloads by least
// squares of the logarithms of their times, fast points more (docs/results/search.md). What every
// execution of a workload takes beside changes no order and is left out.
constexpr double kProcessorLaunchUs = 35;
constexpr double kGroup = 55;  // of the core
constexpr double kInstruction = 0.32;
constexpr double kMiss = 0.81;  // added to an instruction whose loop's contexts do not fit
constexpr double kBarrier = 9.4;
constexpr double kKept = 1.45;         // a 4-byte value at a barrier or between two iterations
constexpr double kL1Bytes = 32 << 10;  // first-level data cache of common processors
constexpr double kPointerBytes = 8, kRegisterBytes = 4;

}  // namespace

Terms ProcessorTerms(const KernelProfile& p, const search_space::Target& t) {
  // Memory instructions in each loop that repeats. The compiler computes their addresses before the
  // loop, so that they are kept like a tile of registers: all work items make an iteration before
  // the first one makes the next, be there a barrier in the loop or not.
  std::vector<double> accesses(p.loops.size());
  for (const Access& a : p.accesses) {
    const auto loop = std::find_if(a.loops.rbegin(), a.loops.rend(), [&](int l) {
      return p.loops[static_cast<size_t>(l)].repeats();
    });
    if (loop != a.loops.rend()) accesses[static_cast<size_t>(*loop)] += a.issued;
  }
  // Of one thread.
  double work = p.work, missing = 0, kept = p.instructions.barrier * p.locals_at_barriers;
  for (size_t i = 0; i < p.loops.size(); ++i) {
    const LoopProfile& loop = p.loops[i];
    if (!loop.repeats()) continue;
    const double context =
        p.threads * (kPointerBytes * accesses[i] / loop.trips + kRegisterBytes * p.live_locals);
    work += loop.work;
    missing += loop.work * std::max(0.0, 1 - kL1Bytes / std::max(context, 1.0));
    kept += loop.trips * p.live_locals;
  }
  const double groups = std::ceil(p.blocks / static_cast<double>(t.sm_count));
  const double cycle_us = 1e-3 / t.clock_ghz;
  const double thread_cycle_us = groups * p.threads * cycle_us;
  Terms terms;
  terms[Term::kLaunch] = kProcessorLaunchUs + groups * kGroup * cycle_us;
  terms[Term::kIssue] = kInstruction * work * thread_cycle_us;
  terms[Term::kL1] = kMiss * missing * thread_cycle_us;
  terms[Term::kLatency] = (kBarrier * p.instructions.barrier + kKept * kept) * thread_cycle_us;
  return terms;
}

}  // namespace heddle::tuner
