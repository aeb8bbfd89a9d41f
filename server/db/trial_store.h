// Trials of jobs, and events with their trials, in the database. Functions that write run within a
// write of the Store.
#ifndef HEDDLE_SERVER_DB_TRIAL_STORE_H_
#define HEDDLE_SERVER_DB_TRIAL_STORE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heddle/v1/tuning.pb.h"
#include "search_space/ir/tensor_program.h"
#include "server/db/job_store.h"
#include "server/db/trust/confirmations.h"
#include "tuner/records/records.h"

namespace heddle::server {

struct TrialRow {
  int64_t id = 0, job = 0;
  int workload = 0;
  std::string point, steps;
  v1::Trial::State state = v1::Trial::STATE_PROPOSED;
  bool is_final = false;
  int kills = 0;
  bool running = false;
  int64_t lease = 0;
  std::string device;
};

// A trial is written when it is leased: before that nothing can have happened with it. One that is
// done stays done: its result may have come, late, before the lease is written.
absl::Status LeaseTrial(tuner::Records& records, const TrialRow& row);
// With the steps of its record where it is a final that is done.
absl::StatusOr<std::optional<TrialRow>> LoadTrial(tuner::Records& records, int64_t id);
// Trials of a job that are PROPOSED or LEASED.
absl::StatusOr<std::vector<TrialRow>> LoadOpenTrials(tuner::Records& records, int64_t job);
// The records of a job's trials of a workload that are done, finals left out.
absl::StatusOr<std::set<int64_t>> LoadScreened(tuner::Records& records, int64_t job, int workload);
absl::StatusOr<int64_t> LargestTrial(tuner::Records& records);
absl::Status SetRunning(tuner::Records& records, const std::vector<int64_t>& started,
                        const std::vector<int64_t>& stopped);

// The result of a leased trial: a record, counted in the job, and an event, whose number is
// returned; 0 where the job has ended.
absl::StatusOr<int64_t> FinishTrial(tuner::Records& records, const TrialRow& row,
                                    v1::Trial::State state,
                                    const search_space::TensorProgram& program,
                                    const tuner::Environment& environment,
                                    const tuner::TrialRecord& record, const FinalOrigin& origin);
// Another measurement of what is done already: a record, but not counted in the job. Nothing where
// the same measurement is stored already.
absl::Status AddMeasurement(tuner::Records& records, const search_space::TensorProgram& program,
                            const tuner::Environment& environment, const tuner::TrialRecord& record,
                            const FinalOrigin& origin);
// Back to PROPOSED, for another lease.
absl::Status ReturnTrial(tuner::Records& records, int64_t id, int kills);
// Of one that is on another device by now.
absl::Status CountKills(tuner::Records& records, int64_t id, int kills);
absl::Status DropTrial(tuner::Records& records, int64_t id);

// A candidate of a lease whose result may still come.
struct LeasedTrial {
  int64_t lease = 0, trial = 0;
  std::string device;
  int64_t job = 0;
  int workload = 0;
  bool is_final = false;
  bool late = false;  // the lease has expired: others may have, or have measured, the candidate
  bool running = false;
};
// Remembers what an expired lease may still bring, also when the server is restarted.
absl::Status AddLateTrial(tuner::Records& records, const TrialRow& row, absl::Time now);
// Forgets those of leases that expired before `when`.
absl::Status PruneLateTrials(tuner::Records& records, absl::Time when);
// Of all jobs, those that have ended included.
absl::StatusOr<std::vector<LeasedTrial>> LoadLeasedTrials(tuner::Records& records);

// In the order of commits, then those under way; `after` is (seq, id) of the last one known.
struct TrialPosition {
  int64_t seq = 0, id = 0;
};
absl::StatusOr<std::vector<v1::Trial>> LoadTrials(tuner::Records& records, int64_t job,
                                                  std::optional<TrialPosition> after, int count);

// Events after `after_seq`, without their job.
absl::StatusOr<std::vector<v1::JobEvent>> LoadEvents(tuner::Records& records, int64_t job,
                                                     int64_t after_seq, int count);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_TRIAL_STORE_H_
