// The part of a database that searches elsewhere start from (docs/cluster.md).
#ifndef HEDDLE_TUNER_RECORDS_TRANSFER_SNAPSHOT_H_
#define HEDDLE_TUNER_RECORDS_TRANSFER_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tuner/records/records.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {

// What a database holds of it.
struct SnapshotReport {
  int64_t trials = 0, workloads = 0, models = 0;
};

// Writes a database with what `records` knows of these workloads under the policy, on each device
// model: the best of them and of the nearest shapes of their operators, trials to learn from
// (Records::kLessons at most), and the stored models. Writes no file where that is nothing.
// AlreadyExists when there is a file at `path`; else the database's errors.
absl::StatusOr<SnapshotReport> WriteSnapshot(
    Records& records,
    absl::Span<const std::shared_ptr<const search_space::TensorProgram>> workloads,
    measure::L2Policy l2, const std::string& path);

absl::StatusOr<SnapshotReport> ReadSnapshot(Records& snapshot);

// Adds trials as they are, whoever measured them: their host and run stay. For databases that
// searches start from, never for one that is served. `next` gives none at the end.
absl::Status AddAsMeasured(Records& records,
                           const std::function<absl::StatusOr<std::optional<StoredTrial>>()>& next);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_TRANSFER_SNAPSHOT_H_
