// Jobs and their events in the database. Functions that write run within a write of the
// Store; those that read need a reader only.
#ifndef HEDDLE_SERVER_DB_JOB_STORE_H_
#define HEDDLE_SERVER_DB_JOB_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sqlite.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "search_space/ir/tensor_program.h"
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

// FailedPrecondition: this version cannot read the job's specification.
absl::Status CheckReadable(const v1::Job& job);
// What a search needs of a job and may have changed since it was read: state, device model and the
// priority, which SQLite reads where it lies. NotFound where the job is forgotten.
absl::Status RefreshJob(tuner::Records& records, v1::Job& job);
// NotFound, also where the job is another tenant's ("" = any tenant).
absl::StatusOr<v1::Job> LoadJob(tuner::Records& records, int64_t id, const std::string& tenant);
// Of the tenant ("" = any), newest first, ids below `before`: `before` is where the next page
// begins, 0 at the end. A page is bounded in bytes, too, and may have fewer than `count` for that.
// `full`: with their texts.
absl::StatusOr<std::vector<v1::Job>> LoadJobs(tuner::Records& records, const std::string& tenant,
                                              const v1::ListJobsRequest::Filter& filter, bool full,
                                              int64_t& before, int count);
// What may be changed of a job, where it is to change.
struct JobUpdate {
  std::optional<std::map<std::string, std::string>> labels;
  std::optional<int32_t> priority;

  void ApplyTo(v1::JobSpec& spec) const;
};
// Changes a job's specification where it is stored, without reading its up to 1 MiB.
absl::Status StoreUpdate(tuner::Records& records, int64_t job, const JobUpdate& update);
// QUEUED again: a job that has ended, with all that it has measured; the event's number. Workloads
// without a final of the job that is OK have not ended.
absl::StatusOr<int64_t> ReopenJob(tuner::Records& records, int64_t job, absl::Time now);
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
// Of the tenant's jobs beyond `kept` that have ended, forgets at most two in the same way: of those
// created first one that ended before `when`. Called for each job that is created, it keeps their
// number from growing.
absl::Status PruneJobsOf(tuner::Records& records, const std::string& tenant, int64_t kept,
                         absl::Time when);

// Changes the state of a job that has not ended and appends the event; 0 where it has ended or is
// in this state already, else the event's number. Terminal states set the end.
absl::StatusOr<int64_t> SetState(tuner::Records& records, int64_t job, v1::Job::State state,
                                 v1::Job::StopReason reason, const std::string& error,
                                 const std::string& model, absl::Time now);

// Why a job that has not ended does not go on, as its error; "" = it does. Of one that has ended
// nothing.
absl::Status SetObstacle(tuner::Records& records, int64_t job, const std::string& why);

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

// The run of a workload on a cluster's node (tuner/records/transfer/run_file.h).
struct WorkloadRun {
  int number = 0;
  std::string run;     // all its attempts
  bool ended = false;  // nothing is left to do for it
};
// Sets workloads' progress to what is collected of their runs on devices of `model`; as often as
// one likes, also when the job has ended. The job has started when its first trial was begun, by
// the node's clock as far as that can be.
absl::Status CountRuns(tuner::Records& records, int64_t job, const std::string& model,
                       const std::vector<WorkloadRun>& runs);

// ------------------------------------------------------------------------------------------ events

// Of a page: messages beyond 4 MiB do not reach clients that were not told to expect them.
inline constexpr size_t kMaxPageBytes = 3 << 20;

// The next event of a job, of a trial where that is not 0; its number.
absl::StatusOr<int64_t> AppendEvent(Database& db, int64_t job, v1::Job::State state, int64_t trial,
                                    absl::Time now);
}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_JOB_STORE_H_
