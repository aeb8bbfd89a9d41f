// What a device makes of a kernel: registers, residency, traffic between the levels of memory, and
// an analytic time in the manner of a roofline with latencies.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_COST_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_COST_H_

#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"
#include "tuner/model/analytic/kernel_profile.h"
#include "tuner/model/analytic/occupancy.h"
#include "tuner/model/analytic/terms.h"

namespace heddle::tuner {

struct KernelCost {
  double register_demand = 0;  // a thread, without limits
  double registers = 0;        // what launch bounds and device leave of it
  double spilled = 0;          // demand over that
  Occupancy occupancy;
  double resident_blocks = 1;  // a multiprocessor, as occupancy and grid allow
  double waves = 1;            // rounds of blocks until the last is done
  double busiest_blocks = 1;   // of the multiprocessor that gets the most

  // Bytes of all blocks.
  double requested_bytes = 0;  // by the threads
  double l1_bytes = 0;         // whole sectors, between multiprocessor and its first-level cache
  double l2_bytes = 0;         // between first level and L2
  double dram_bytes = 0;       // between L2 and memory, from a cold L2
  double unique_bytes = 0;     // distinct bytes of all buffers

  Terms terms;
  double total_us = 0;
};

KernelCost CostOf(KernelProfile& profile, const search_space::Target& target);
// Of all kernels of a program, which run one after another.
Terms TermsOf(const search_space::Program& program, const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_COST_H_
