// The roofline of a workload on a device: the least time that its arithmetic and its compulsory
// memory traffic allow, and how close a measured time comes to it.
#ifndef HEDDLE_TUNER_MODEL_ROOFLINE_H_
#define HEDDLE_TUNER_MODEL_ROOFLINE_H_

#include <string>

#include "measure/device/outcome.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::tuner {

// Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 2009), with every input and output
// moved once.
struct Roofline {
  double flops = 0;  // of one execution
  double bytes = 0;  // inputs and outputs, each once
  // The operations of its cheapest algorithm at peak; 0 = the device's peak is not known.
  double compute_us = 0;
  double memory_us = 0;  // bytes at device memory bandwidth; 0 = not known, or all stays in cache

  // The larger of both; 0 = unknown.
  double us() const { return compute_us > memory_us ? compute_us : memory_us; }
  // Whether GFLOP/s says more about the workload than GB/s.
  bool compute_bound() const;
  // Share of the roofline that `time_us` reaches, 0 .. 1; 0 = unknown.
  double Share(double time_us) const { return time_us > 0 ? us() / time_us : 0; }
  double Gflops(double time_us) const { return time_us > 0 ? flops / time_us * 1e-3 : 0; }
  double Gbs(double time_us) const { return time_us > 0 ? bytes / time_us * 1e-3 : 0; }
  // "1234 GFLOP/s" or "87.1 GB/s", whichever says more.
  std::string Rate(double time_us) const;
};

Roofline RooflineOf(const search_space::TensorProgram& program, const search_space::Target& target,
                    measure::L2Policy l2);

// "12.3 us", "4.56 ms": three significant digits.
std::string FormatTime(double time_us);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ROOFLINE_H_
