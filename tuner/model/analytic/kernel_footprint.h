// Distinct bytes of global memory that a kernel touches, loop by loop: what has to fit into a cache
// for its data to be loaded once. An access is taken to touch all of the smallest box that holds
// it, but no more bytes than it asks for.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_FOOTPRINT_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_FOOTPRINT_H_

#include "tuner/model/analytic/kernel_profile.h"

namespace heddle::tuner {

// Fills Access::footprint of the global accesses and LoopProfile::working_set of a profile that has
// all else of its loops and accesses. Leaves the block's index and the loops fixed, as FootprintOf
// does.
void MeasureFootprints(KernelProfile& profile);

// Bytes of the access that the first `blocks` blocks touch: what has to fit into a cache for them
// to share it.
double FootprintOf(KernelProfile& profile, const Access& access, double blocks);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_KERNEL_FOOTPRINT_H_
