// Measured trials in a compact text, for replaying searches and judging cost models without a
// device (docs/search.md has the format).
#ifndef HEDDLE_TUNER_RECORDS_TRANSFER_TRIAL_SET_H_
#define HEDDLE_TUNER_RECORDS_TRANSFER_TRIAL_SET_H_

#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tuner/records/records.h"

namespace heddle::tuner {

// The trials of one workload in one environment: of one sketch after another, each in the order in
// which they were made.
struct TrialSet {
  Environment environment;
  std::string workload;  // TensorProgram::canonical_text
  struct Trial {
    std::string point;            // as SearchSpace::Print gives it
    measure::TrialResult result;  // outcome, time, interval, noisy and screened_out
  };
  std::vector<Trial> trials;
};

// Converts JSON lines (Records::Export): screening trials of points, each point's first. Returns
// how many trials were written. InvalidArgument names the line that is no trial.
absl::StatusOr<int64_t> WriteTrialSets(std::istream& json_lines, std::ostream& out);

// InvalidArgument names the line and what was expected.
absl::StatusOr<std::vector<TrialSet>> ReadTrialSets(std::istream& in);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_TRANSFER_TRIAL_SET_H_
