#include "tuner/records/plausible.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "measure/judge/criteria.h"
#include "search_space/ir/target.h"
#include "search_space/notation/notation.h"

namespace heddle::tuner {
namespace {

using search_space::Target;

constexpr double kFasterThanAny = 2;
constexpr size_t kRemembered = 4096;  // workloads on devices

Target TargetOf(const std::string& device_name) {
  Target any;
  for (const std::string& name : search_space::TargetNames()) {
    const Target target = *search_space::FindTarget(name);
    if (target.name == device_name) return target;
    any.peak_gflops = std::max(any.peak_gflops, kFasterThanAny * target.peak_gflops);
    any.memory_gbs = std::max(any.memory_gbs, kFasterThanAny * target.memory_gbs);
    any.l2_bytes = std::max(any.l2_bytes, target.l2_bytes);
    any.memory_bytes = std::max(any.memory_bytes, target.memory_bytes);
  }
  return any;
}

}  // namespace

double Plausibility::FastestOf(const StoredTrial& stored) {
  const Environment& e = stored.environment;
  const std::string key =
      absl::StrCat(stored.workload.text, "\n", e.device_name, "\n", NameOf(e.l2));
  const auto known = fastest_us_.find(key);
  if (known != fastest_us_.end()) return known->second;
  const auto program = search_space::ParseWorkload(stored.workload.text);
  const double fastest_us =
      program.ok() ? measure::FastestPlausible(*program, TargetOf(e.device_name), e.l2) * 1e6 : 0;
  if (fastest_us_.size() >= kRemembered) fastest_us_.clear();
  return fastest_us_[key] = fastest_us;
}

absl::Status Plausibility::Check(const StoredTrial& stored) {
  const measure::TrialResult& result = stored.trial.result;
  if (result.outcome != measure::Outcome::kOk) return absl::OkStatus();
  const double fastest_us = FastestOf(stored);
  if (result.time_us >= fastest_us) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"trial.time_us\" is ", result.time_us, ", and ",
                                                 stored.environment.device_name, " needs ",
                                                 fastest_us, " at least"));
}

absl::StatusOr<StoredTrial> ReadPlausible(const std::string& line, Plausibility& plausibility) {
  absl::StatusOr<StoredTrial> stored = ParseLine(line);
  if (stored.ok()) {
    HEDDLE_RETURN_IF_ERROR(plausibility.Check(*stored));
  }
  return stored;
}

}  // namespace heddle::tuner
