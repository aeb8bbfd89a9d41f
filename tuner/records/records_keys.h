// The rows that trials refer to: found by what they hold, or added.
#ifndef HEDDLE_TUNER_RECORDS_RECORDS_KEYS_H_
#define HEDDLE_TUNER_RECORDS_RECORDS_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sqlite.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {

// Row ids of what a trial refers to.
struct TrialKeys {
  int64_t workload = 0, bench = 0, environment = 0;
  std::optional<int64_t> steps, source;
};

// Over a database that outlives it. Those that add run within a transaction.
class RecordKeys {
 public:
  explicit RecordKeys(Database& database) : db_(database) {}

  // NotFound where there is none.
  absl::StatusOr<int64_t> FindWorkload(const WorkloadRow& row);
  absl::StatusOr<int64_t> FindOrAddWorkload(const WorkloadRow& row);
  // One, unless a row of the same hash was damaged and written anew.
  absl::StatusOr<std::vector<int64_t>> Workloads(const std::string& hash);
  // That what is measured there is written under; what is not known is no other than not known.
  absl::StatusOr<int64_t> FindBench(const Bench& bench);
  absl::StatusOr<int64_t> FindOrAddBench(const Bench& bench);
  // All that agree with it (Agree).
  // `is_only`: whether there is no other bench of the device's name.
  absl::StatusOr<std::vector<int64_t>> Benches(const Bench& bench, bool* is_only = nullptr);
  absl::StatusOr<TrialKeys> FindOrAdd(const StoredTrial& stored);
  // The row that already holds this trial, whoever brought it: its id, and whether it was imported.
  struct Same {
    int64_t id;
    bool imported;
  };
  absl::StatusOr<std::optional<Same>> FindSame(const StoredTrial& stored, const TrialKeys& keys);
  // Adds a trial that refers to these; its id.
  absl::StatusOr<int64_t> Insert(const StoredTrial& stored, const TrialKeys& keys);

 private:
  // `found` unless it is NotFound, else the id that `sql` inserts.
  template <typename... Args>
  absl::StatusOr<int64_t> OrInsert(absl::StatusOr<int64_t> found, const std::string& sql,
                                   const Args&... args);
  absl::StatusOr<int64_t> FindOrAddSteps(const std::string& text);
  absl::StatusOr<int64_t> FindOrAddEnvironment(const Environment& environment);
  absl::StatusOr<int64_t> FindOrAddSource(const Provenance& from);

  Database& db_;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_RECORDS_KEYS_H_
