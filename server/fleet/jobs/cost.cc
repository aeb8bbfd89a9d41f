#include "server/fleet/jobs/cost.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "measure/judge/memory.h"

namespace heddle::server {
namespace {

// Of a device's peak, what a program without any decision reaches where it reuses data: matrix
// products do 5 to 10 %. A device that is occupied for longer than this by one run is another's no
// more.
constexpr double kNaiveShare = 0.05, kMaxNaiveSeconds = 10;

}  // namespace

absl::Status CheckCost(const search_space::TensorProgram& program,
                       const search_space::Target& target) {
  HEDDLE_RETURN_IF_ERROR(measure::CheckMemory(program, target.name, target.memory_bytes));
  const double seconds = program.Flops() / (kNaiveShare * target.peak_gflops * 1e9);
  if (target.peak_gflops > 0 && seconds > kMaxNaiveSeconds) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "one run of ", program.op, " without any tuning takes about ", std::ceil(seconds), " s on ",
        target.name, ", and at most ", kMaxNaiveSeconds, " are allowed: choose a smaller shape"));
  }
  return absl::OkStatus();
}

}  // namespace heddle::server
