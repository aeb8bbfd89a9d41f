// How many registers a compiler gives a thread of a kernel.
#ifndef HEDDLE_TUNER_REGISTER_ESTIMATE_H_
#define HEDDLE_TUNER_REGISTER_ESTIMATE_H_

#include "search_space/target.h"
#include "tuner/kernel_profile.h"

namespace heddle::tuner {

// 32-bit registers of a thread if nothing limited them. Linear in what holds registers, with
// coefficients fitted to what NVRTC 13.0 reports for sm_90 (docs/results.md says how well). Kernels
// with shared tiles and those without have fits of their own: the compiler unrolls and batches the
// loads of the latter as it likes.
double RegisterDemand(const KernelProfile& profile, const search_space::Target& target);

// Registers a thread can have: launch bounds, register file and instruction set.
double RegisterLimit(const KernelProfile& profile, const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_REGISTER_ESTIMATE_H_
