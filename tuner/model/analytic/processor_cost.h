// What a kernel takes on a processor whose OpenCL driver runs a work group on one core, its work
// items one after another in loops between barriers, as PoCL does (P. Jaaskelainen et al., PoCL,
// IJPP 2015). What a GPU has instead, coalescing, banks, warps and occupancy, does not exist there.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_PROCESSOR_COST_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_PROCESSOR_COST_H_

#include "search_space/ir/target.h"
#include "tuner/model/analytic/kernel_profile.h"
#include "tuner/model/analytic/terms.h"

namespace heddle::tuner {

// Of the busiest core: launches, of the kernel and of the core's groups; issue, the instructions;
// latency, barriers and what work items keep in memory across them; l1, instructions that wait
// since that does not fit into the first level. The others are 0. Finite and not negative wherever
// the target has cores, a clock and the profile a block.
Terms ProcessorTerms(const KernelProfile& profile, const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_PROCESSOR_COST_H_
