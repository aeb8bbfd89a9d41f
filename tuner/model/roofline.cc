#include "tuner/model/roofline.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "search_space/ir/matrix.h"
#include "search_space/sketch/programs/least_flops.h"

namespace heddle::tuner {
namespace {

// Operations per byte above which a workload counts as arithmetic where the peaks are unknown:
// about the balance of CPUs and of older GPUs.
constexpr double kBalance = 8;

// Three significant digits without an exponent.
std::string Significant(double value) {
  int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return absl::StrFormat("%.*f", decimals, value);
}

}  // namespace

bool Roofline::compute_bound() const {
  if (compute_us > 0 && memory_us > 0) return compute_us > memory_us;
  return flops > kBalance * bytes;
}

std::string Roofline::Rate(double time_us) const {
  if (compute_bound()) return Significant(Gflops(time_us)) + " GFLOP/s";
  return Significant(Gbs(time_us)) + " GB/s";
}

Roofline RooflineOf(const search_space::TensorProgram& program, const search_space::Target& target,
                    measure::L2Policy l2) {
  Roofline r;
  r.flops = program.Flops();
  r.bytes = static_cast<double>(program.IoBytes());
  if (const double peak = search_space::PeakGflops(program, target); peak > 0) {
    r.compute_us = search_space::LeastFlops(program) / peak * 1e-3;
  }
  bool stays_in_cache = l2 == measure::L2Policy::kWarm && r.bytes <= target.l2_bytes;
  if (target.memory_gbs > 0 && !stays_in_cache) r.memory_us = r.bytes / target.memory_gbs * 1e-3;
  return r;
}

std::string FormatTime(double time_us) {
  if (time_us >= 1e6) return Significant(time_us * 1e-6) + " s";
  if (time_us >= 1e3) return Significant(time_us * 1e-3) + " ms";
  return Significant(time_us) + " us";
}

}  // namespace heddle::tuner
