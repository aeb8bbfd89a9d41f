// What a warp's accesses cost by the pattern of their addresses: sectors of global memory, passes
// of shared memory's banks.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_ADDRESS_PATTERN_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_ADDRESS_PATTERN_H_

#include <array>

#include "tuner/model/analytic/kernel_profile.h"
#include "tuner/model/analytic/sampled_eval.h"

namespace heddle::tuner {

// Sets the sectors of `access`, or its wavefronts, and their ideals: means over the sampled warps
// of which any lane takes part, at `indices`. `active` is 1 for the lanes that do, `lanes_on` their
// number by warp.
void MeasureAddresses(SampledVariables& vars, const Sampled& active,
                      const std::array<double, kWarpSamples>& lanes_on,
                      const search_space::ExprList& indices, Access& access);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_ADDRESS_PATTERN_H_
