// What a session knows of earlier trials, and what it says of its own: the part of the records that
// a search needs. A searcher whose results are recorded elsewhere brings its own.
#ifndef HEDDLE_TUNER_SEARCH_TRIAL_LOG_H_
#define HEDDLE_TUNER_SEARCH_TRIAL_LOG_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "search_space/ir/tensor_program.h"
#include "tuner/records/records.h"

namespace heddle::tuner {

// The trials of one workload in one environment. Errors are the database's.
class TrialLog {
 public:
  virtual ~TrialLog() = default;

  struct Known {
    std::vector<TrialRecord> trials;  // oldest first
    std::vector<std::string> stale;   // points that seem to take their host, or the tuner, down
  };
  virtual absl::StatusOr<Known> Load() = 0;
  // The points' candidates may run from now on.
  virtual absl::Status Begin(absl::Span<const std::string> points) = 0;
  // How a candidate, or a final, ended; durable when it returns OK.
  virtual absl::Status Add(const TrialRecord& trial) = 0;
  // The points' candidates will not end: the session does.
  virtual absl::Status Abandon(absl::Span<const std::string> points) = 0;
};

// Keeps them in `records`. All must outlive the log.
std::unique_ptr<TrialLog> MakeTrialLog(Records& records, const search_space::TensorProgram& program,
                                       const Environment& environment);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_TRIAL_LOG_H_
