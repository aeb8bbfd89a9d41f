#include "tuner/model/analytic/register_estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tuner/model/analytic/occupancy.h"

namespace heddle::tuner {
namespace {

using search_space::Scope;
using search_space::Target;

// The weights of RegisterTerms, as bench/fit_registers.py found them: every second kernel that
// `bench/registers bench/suites/record.txt` samples, NVRTC 13.0 for sm_90, a loss that counts
// kernels more than 17 % off; the other half judges (docs/results/compiler.md).
using Weights = std::array<double, 6>;
constexpr Weights kLeast = {10.84, 1.16}, kMost = {4.41, 2.21, 0.74, 0.69, 48.02};
constexpr Weights kTiledLeast = {0, 1.51, 0.22, 0.91, 2.39, 3.53};
constexpr Weights kTiledMost = {35.51, 0.94, 1.07, 0.28, 19.96, 0.1};

double Sum(const Weights& weights, const Weights& terms) {
  return std::inner_product(weights.begin(), weights.end(), terms.begin(), 0.0);
}

// Loops of at most so many iterations are unrolled whole by the compiler.
constexpr double kShortLoop = 4;

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

// What the text of one iteration of the serial loops holds.
struct Text {
  double addresses = 0;     // of global loads, those that differ by more than a constant
  double copies = 0;        // asynchronous copies in serial loops
  double loads = 0;         // elements loaded from global memory
  double shared_loads = 0;  // elements loaded from shared memory
  double steps = 1;         // iterations of the loop with barriers
  double longest_loop = 1;  // most iterations of a serial loop
};

Text TextOf(const KernelProfile& p) {
  Text text;
  // The prologue of a pipeline and its loop share addresses.
  absl::flat_hash_map<const search_space::Buffer*, double> addresses;
  for (const Access& a : p.accesses) {
    if (a.store || a.bulk) continue;
    bool in_serial = false;
    const double copies = CopiesOf(p, a, in_serial);
    if (a.buffer->scope != Scope::kGlobal) {
      text.shared_loads += copies;
      continue;
    }
    double& most = addresses[a.buffer.get()];
    most = std::max(most, a.addresses);
    if (!a.async) {
      text.loads += copies;
    } else if (in_serial) {
      text.copies += copies / a.lanes;
    }
  }
  for (const auto& [buffer, n] : addresses) text.addresses += n;
  for (const LoopProfile& l : p.loops) {
    if (!l.serial) continue;
    text.longest_loop = std::max(text.longest_loop, l.extent);
    if (l.has_barrier) text.steps = std::max(text.steps, l.extent);
  }
  return text;
}

// Registers that a thread can have without fewer blocks on a multiprocessor.
double ShareOf(const KernelProfile& p, const Target& t) {
  if (p.min_blocks > 0) return RegisterLimit(p, t);
  // The compiler does not know of dynamic shared memory.
  const bool known = p.shared_bytes <= static_cast<double>(t.static_shared_bytes);
  const Occupancy o = OccupancyOf(p.threads, 1, known ? p.shared_bytes : 0, t);
  const double blocks = std::max(1.0, std::min({o.by_blocks, o.by_threads, o.by_shared}));
  const double share = static_cast<double>(t.registers_per_sm) / (blocks * p.warps * kLanes);
  return std::min(static_cast<double>(t.max_registers_per_thread), std::floor(share / 8) * 8);
}

}  // namespace

RegisterTerms RegisterTermsOf(const KernelProfile& p, const Target& t) {
  const Text text = TextOf(p);
  RegisterTerms terms{.tiled = p.fragments > 0, .share = ShareOf(p, t)};
  const double code = std::log2(std::max(1.0, p.code_size));
  if (!terms.tiled) {
    terms.least = {1, p.largest_local};
    terms.most = {1, code, std::min(text.loads, 64.0), std::min(text.shared_loads, 128.0),
                  text.longest_loop > kShortLoop ? 1.0 : 0.0};
    return terms;
  }
  if (text.steps > 1) {
    // A step's loads wait in registers while the step before it is computed; addresses are kept.
    terms.least = {1, p.accumulators, p.fragments, p.staged, code, std::min(text.addresses, 24.0)};
    terms.most = {1, p.accumulators, p.staged, std::min(text.copies, 32.0), 1, 0};
  } else {
    // What was loaded is stored before anything is computed.
    const double staged = std::max(0.0, p.staged - p.accumulators - p.fragments);
    terms.least = {1, p.accumulators, p.fragments, staged, code, 0};
    terms.most = {1, p.accumulators, 0, 0, 0, std::min(text.shared_loads, 96.0)};
  }
  return terms;
}

double RegisterDemand(const KernelProfile& p, const Target& t) {
  const RegisterTerms terms = RegisterTermsOf(p, t);
  const double least = Sum(terms.tiled ? kTiledLeast : kLeast, terms.least);
  const double most = Sum(terms.tiled ? kTiledMost : kMost, terms.most);
  return std::max(least, std::min(most, terms.share));
}

double RegisterLimit(const KernelProfile& p, const Target& t) {
  const double threads = p.warps * kLanes * std::max(1.0, p.min_blocks);
  const double share = static_cast<double>(t.registers_per_sm) / threads;
  return std::min(static_cast<double>(t.max_registers_per_thread), std::floor(share / 8) * 8);
}

}  // namespace heddle::tuner
