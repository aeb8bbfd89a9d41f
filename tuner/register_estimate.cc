#include "tuner/register_estimate.h"

#include <algorithm>
#include <cmath>

namespace heddle::tuner {
namespace {

using search_space::Scope;
using search_space::Target;

// What the fits look at beside the profile's own figures.
struct Holders {
  double addresses = 0;     // of global loads, those that differ by more than a constant
  double copies = 0;        // asynchronous copies in the text of one step
  double fragments = 0;     // elements that one serial iteration loads from shared memory
  double loads = 0;         // elements that one serial iteration loads from global memory
  double accesses = 0;      // loads and stores of global memory
  double steps = 1;         // iterations of the loop with barriers
  double longest_loop = 1;  // most iterations of a serial loop
  bool staged = false;      // a pipeline through registers
};

// Executions of an access in the text of one iteration of the serial loop around it.
double CopiesOf(const KernelProfile& p, const Access& a, bool& in_serial) {
  double copies = 1;
  in_serial = false;
  for (size_t i = a.loops.size(); i-- > 0 && !in_serial;) {
    const LoopProfile& l = p.loops[static_cast<size_t>(a.loops[i])];
    in_serial = l.serial;
    if (!l.serial) copies *= l.extent;
  }
  return copies;
}

Holders HoldersOf(const KernelProfile& p) {
  Holders h;
  // The prologue of a pipeline and its loop share addresses.
  absl::flat_hash_map<const search_space::Buffer*, double> addresses;
  for (const Access& a : p.accesses) {
    bool in_serial = false;
    const double copies = CopiesOf(p, a, in_serial);
    if (a.buffer->scope == Scope::kGlobal) {
      h.accesses += 1;
      if (a.store) continue;
      double& most = addresses[a.buffer];
      most = std::max(most, a.addresses);
      if (a.async) {
        h.copies = std::max(h.copies, copies / a.lanes);
      } else {
        h.loads += copies;
      }
    } else if (!a.store && in_serial) {
      h.fragments = std::max(h.fragments, copies);
    }
  }
  for (const auto& [buffer, n] : addresses) h.addresses += n;
  for (const LoopProfile& l : p.loops) {
    if (!l.serial) continue;
    h.longest_loop = std::max(h.longest_loop, l.extent);
    if (l.has_barrier) h.steps = std::max(h.steps, l.extent);
    h.staged = h.staged || (l.lookahead > 0 && p.instructions.async_copy == 0);
  }
  return h;
}

// Loops of at most so many iterations are unrolled whole by the compiler.
constexpr double kShortLoop = 4;

double WithTiles(const KernelProfile& p, const Holders& h) {
  // What is the same in all steps is computed once and kept.
  const bool loops = h.steps > 1;
  return 4.6 + 0.95 * p.largest_local + 0.43 * (p.live_locals - p.largest_local) +
         (loops ? 3.5 * std::min(h.addresses, 24.0) + 0.95 * std::min(h.copies, 32.0) : 0) +
         (h.staged ? 11.5 : 0) + 5.9 * std::log2(std::max(1.0, p.code_size)) -
         0.89 * std::min(h.fragments, 16.0) - (h.steps <= kShortLoop ? 5.3 : 0);
}

double Streaming(const KernelProfile& p, const Holders& h, const Target& t) {
  const double special = p.instructions.special / p.instructions.total();
  double demand = 2.3 + 0.37 * std::min(h.loads, 24.0) + 0.53 * h.accesses +
                  3.45 * std::log2(std::max(1.0, p.code_size)) - 143 * special;
  if (h.longest_loop > kShortLoop) {
    // The compiler loads ahead as far as it costs no occupancy: two short of the file's share when
    // as many blocks run as there are places for.
    const double threads = std::min(static_cast<double>(t.max_threads_per_sm),
                                    static_cast<double>(t.max_blocks_per_sm) * p.warps * kLanes);
    demand = std::max(demand, static_cast<double>(t.registers_per_sm) / threads - 2);
  }
  return std::max(demand, 8.0);
}

}  // namespace

double RegisterDemand(const KernelProfile& p, const Target& t) {
  const Holders h = HoldersOf(p);
  return p.shared_bytes > 0 ? WithTiles(p, h) : Streaming(p, h, t);
}

double RegisterLimit(const KernelProfile& p, const Target& t) {
  const double threads = p.warps * kLanes * std::max(1.0, p.min_blocks);
  const double share = static_cast<double>(t.registers_per_sm) / threads;
  return std::min(static_cast<double>(t.max_registers_per_thread), std::floor(share / 8) * 8);
}

}  // namespace heddle::tuner
