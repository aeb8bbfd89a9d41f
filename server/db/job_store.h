// Jobs, their trials and events in the database. Functions that write run within a write of the
// Store; those that read need a reader only.
#ifndef HEDDLE_SERVER_DB_JOB_STORE_H_
#define HEDDLE_SERVER_DB_JOB_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "search_space/ir/tensor_program.h"
#include "server/db/confirmations.h"
#include "tuner/records/records.h"

namespace heddle::server {

using Workload = std::shared_ptr<const search_space::TensorProgram>;

// ---------------------------------------------------------------------------------------- requests

// The same for requests that are the same: what a caller works out anew each time, when the job
// expires, counts for nothing.
uint64_t HashOfRequest(const v1::JobSpec& spec);
// What an earlier request of this id made; AlreadyExists when that had another body.
absl::StatusOr<std::optional<int64_t>> FindRequest(tuner::Records& records,
                                                   const std::string& tenant,
                                                   const std::string& method,
                                                   const std::string& request_id, uint64_t body);
absl::Status AddRequest(tuner::Records& records, const std::string& tenant,
                        const std::string& method, const std::string& request_id, uint64_t body,
                        int64_t result, absl::Time now);
// Forgets those made before `when`.
absl::Status PruneRequests(tuner::Records& records, absl::Time when);

// -------------------------------------------------------------------------------------------- jobs

// A new job, QUEUED, with its first event; its id.
absl::StatusOr<int64_t> InsertJob(tuner::Records& records, const std::string& tenant,
                                  const v1::JobSpec& spec, const std::vector<Workload>& workloads,
                                  absl::Time now);
absl::StatusOr<bool> HasEnded(tuner::Records& records, int64_t job);
absl::StatusOr<int64_t> CountOpenJobs(tuner::Records& records, const std::string& tenant);

// NotFound, also where the job is another tenant's ("" = any tenant).
absl::StatusOr<v1::Job> LoadJob(tuner::Records& records, int64_t id, const std::string& tenant);
// Of the tenant ("" = any), newest first, ids below `before`: `before` is where the next page
// begins, 0 at the end. A page is bounded in bytes, too, and may have fewer than `count` for that.
// `full`: with their texts.
absl::StatusOr<std::vector<v1::Job>> LoadJobs(tuner::Records& records, const std::string& tenant,
                                              const v1::ListJobsRequest::Filter& filter, bool full,
                                              int64_t& before, int count);
// What v1::JOB_VIEW_BASIC does without.
void LeaveOutTexts(v1::Job& job);
// Those that have not ended, oldest first. One whose specification cannot be read has the reason as
// its error.
absl::StatusOr<std::vector<v1::Job>> LoadOpenJobs(tuner::Records& records);

// Searchers that the job has lost in a row.
absl::StatusOr<int64_t> LoadRestarts(tuner::Records& records, int64_t job);
absl::Status SetRestarts(tuner::Records& records, int64_t job, int64_t restarts);

// Forgets at most `count` jobs that ended before `when`, the oldest first, with their trials and
// events; what was measured for them stays. How many.
absl::StatusOr<int> PruneJobs(tuner::Records& records, absl::Time when, int count);

// Changes the state of a job that has not ended and appends the event; 0 where it has ended or is
// in this state already, else the event's number. Terminal states set the end.
absl::StatusOr<int64_t> SetState(tuner::Records& records, int64_t job, v1::Job::State state,
                                 v1::Job::StopReason reason, const std::string& error,
                                 const std::string& model, absl::Time now);

// ---------------------------------------------------------------------------------------- progress

struct WorkloadUse {
  std::string text;    // canonical
  int64_t trials = 0;  // done
  double best_us = 0;  // 0 = none
  double search_s = 0;
  bool ended = false;
};
absl::StatusOr<std::vector<WorkloadUse>> LoadUse(tuner::Records& records, int64_t job);
absl::Status AddSearchTime(tuner::Records& records, int64_t job, int number, double seconds);
absl::Status EndWorkload(tuner::Records& records, int64_t job, int number, double default_us);

// The run of a workload on a cluster's node (tuner/records/run_file.h).
struct WorkloadRun {
  int number = 0;
  std::string run;     // all its attempts
  bool ended = false;  // nothing is left to do for it
};
// Sets a workload's progress to what is collected of its run; as often as one likes.
absl::Status CountRun(tuner::Records& records, int64_t job, const WorkloadRun& run);

// ------------------------------------------------------------------------------------------ trials

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

// A trial is written when it is leased: before that nothing can have happened with it.
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

// ----------------------------------------------------------------------------------------- devices

absl::Status SaveDevice(tuner::Records& records, const v1::FleetDevice& device);
absl::StatusOr<std::vector<v1::FleetDevice>> LoadDevices(tuner::Records& records);
absl::Status DeleteDevice(tuner::Records& records, const std::string& id);

// Advances and returns the server's epoch.
absl::StatusOr<int64_t> NextEpoch(tuner::Records& records);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_JOB_STORE_H_
