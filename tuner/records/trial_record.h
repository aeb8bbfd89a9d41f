// What records know of a trial: the environment and the bench that it was measured on, by whom it
// was, and the trial itself, what was tried and what came of it.
#ifndef HEDDLE_TUNER_RECORDS_TRIAL_RECORD_H_
#define HEDDLE_TUNER_RECORDS_TRIAL_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "measure/device/device_info.h"
#include "measure/device/outcome.h"

namespace heddle::tuner {

// The device, software and policy a time was measured under.
struct Environment {
  std::string device_name;
  std::string device_uuid;
  std::string arch;
  int64_t sm_count = 0;
  std::string driver;
  std::string compiler;
  int generator_version = 0;
  int feature_version = 0;
  measure::L2Policy l2 = measure::L2Policy::kCold;
  // Of GPUs; 0 = not known.
  int64_t memory_mib = 0;
  int64_t power_limit_w = 0;
};
Environment MakeEnvironment(const measure::DeviceInfo& device, measure::L2Policy l2);

// What times compare on: a device model of one size under one policy. 0 = not known, or any.
struct Bench {
  std::string device_name;
  measure::L2Policy l2 = measure::L2Policy::kCold;
  int64_t sm_count = 0;
  int64_t memory_mib = 0;
  int64_t power_limit_w = 0;
};
Bench BenchOf(const Environment& environment);
Bench BenchOf(const measure::DeviceInfo& device, measure::L2Policy l2);
// Whether what is known of both is the same. Memories within 10 % are: drivers
// keep some of it, and so do error-correcting codes.
bool Agree(const Bench& a, const Bench& b);

// Who measured, where and in which run: each as far as it is known, else empty or 0.
struct Provenance {
  std::string tenant;  // of the server's: whose job it was, or who imported it
  int64_t token = 0;   // id of the token that reported or imported it
  std::string host;    // HostId of the host that measured
  std::string run;     // a session's id or a job's name
  bool operator==(const Provenance&) const = default;
};
// Of what this process measures.
Provenance LocalProvenance();

enum class TrialStage : uint8_t { kScreening, kFinal };
enum class Origin : uint8_t { kMeasured, kImported };

// Whether a trial that ended so has found its schedule to be wrong. One that was quarantined is an
// illegal access without a source, and has not.
inline bool ShowsWrong(const measure::TrialResult& result) {
  return result.outcome == measure::Outcome::kWrongAnswer ||
         (result.outcome == measure::Outcome::kIllegalAccess && !result.source_hash.empty());
}

struct TrialRecord {
  int64_t id = 0;  // assigned by the database
  std::string workload_hash;
  std::string point;  // SearchSpace::Print; empty for hand-written steps
  // Text. Kept for finals, imports, what was wrong and where there is no point; empty otherwise, as
  // the point gives the steps.
  std::string steps;
  TrialStage stage = TrialStage::kScreening;
  Origin origin = Origin::kMeasured;
  measure::TrialResult result;
  bool throttled = false;
  int other_processes = 0;
  absl::Time when;  // kept to the microsecond; the epoch, its default, stands for "now" in AddTrial
  Provenance from;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_TRIAL_RECORD_H_
