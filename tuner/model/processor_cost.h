// What a kernel takes on a processor whose OpenCL driver runs a work group on one core, its work
// items one after another in loops between barriers, as PoCL does (P. Jaaskelainen et al., PoCL,
// IJPP 2015). What a GPU has instead, coalescing, banks, warps and occupancy, does not exist there.
#ifndef HEDDLE_TUNER_MODEL_PROCESSOR_COST_H_
#define HEDDLE_TUNER_MODEL_PROCESSOR_COST_H_

#include "search_space/ir/target.h"
#include "tuner/model/kernel_profile.h"

namespace heddle::tuner {

// Microseconds of the busiest core.
struct ProcessorCost {
  double launch_us = 0;    // of the kernel and, on the core, of its groups
  double work_us = 0;      // instructions
  double contexts_us = 0;  // barriers, and what work items keep in memory across them
  double misses_us = 0;    // instructions that wait since that does not fit into the first level

  double total_us() const { return launch_us + work_us + contexts_us + misses_us; }
};

// Finite and positive wherever the target has cores, a clock and the profile a block.
ProcessorCost ProcessorCostOf(const KernelProfile& profile, const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_PROCESSOR_COST_H_
