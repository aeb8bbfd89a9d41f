// Counts what a kernel does.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_PROFILER_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_PROFILER_H_

#include "search_space/ir/stmt.h"
#include "tuner/model/analytic/kernel_profile.h"

namespace heddle::tuner {

// What a launch of a kernel does, as the passes have left it; which addresses its warps ask for is
// seen of a sample of them (sampled_eval.h).
KernelProfile ProfileOf(const search_space::Kernel& kernel);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_PROFILER_H_
