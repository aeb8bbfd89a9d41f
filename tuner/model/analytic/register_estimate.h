// How many registers a compiler gives a thread of a kernel.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_REGISTER_ESTIMATE_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_REGISTER_ESTIMATE_H_

#include <array>

#include "search_space/ir/target.h"
#include "tuner/model/analytic/kernel_profile.h"

namespace heddle::tuner {

// What ptxas weighs. Below `least` registers values would have to be computed or loaded again; with
// `most` all loads of a step are under way at once. It takes what it can of the latter without
// costing blocks on a multiprocessor: as many as the launch bounds' blocks leave, or, where they
// ask for none, as leave room for all blocks that threads, slots and static shared memory admit. So
// a thread gets max(least, min(most, share)), and both are sums of the terms here with fitted
// weights (register_estimate.cc).
struct RegisterTerms {
  bool tiled = false;  // registers hold fragments of shared tiles; such kernels have their own fit
  std::array<double, 6> least{}, most{};
  double share = 0;
};
RegisterTerms RegisterTermsOf(const KernelProfile& profile, const search_space::Target& target);

// 32-bit registers of a thread that the compiler would give if the launch bounds' blocks were only
// a wish (docs/results/compiler.md says how near that is). Above RegisterLimit values are spilled.
double RegisterDemand(const KernelProfile& profile, const search_space::Target& target);

// Registers a thread can have: launch bounds, register file and instruction set.
double RegisterLimit(const KernelProfile& profile, const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_REGISTER_ESTIMATE_H_
