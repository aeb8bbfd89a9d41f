// Jobs that have not ended: their life from creation to the last event.
#ifndef HEDDLE_SERVER_FLEET_JOBS_JOBS_H_
#define HEDDLE_SERVER_FLEET_JOBS_JOBS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "heddle/v1/tuning.pb.h"
#include "server/db/job_store.h"
#include "server/db/trust/auth.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "server/fleet/jobs/candidates.h"
#include "tuner/records/records.h"

namespace heddle::server {

struct ActiveJob {
  int64_t id = 0;
  std::string tenant;
  v1::JobSpec spec;
  v1::Job::State state = v1::Job::STATE_QUEUED;
  absl::Time created, expires = absl::InfiniteFuture();
  std::vector<Workload> workloads;
  std::vector<WorkloadUse> uses;
  std::vector<std::string> errors;  // of workloads that ended without a schedule
  bool cancelling = false, ending = false;

  // Its search.
  int workload = 0;   // at work
  v1::Device device;  // of the model that it works on
  Candidates candidates;
  std::string default_point;
  std::optional<TrialRow> default_final;  // that schedule, once finals have measured it
  double best_us = 0;
  bool searching = false;  // its thread runs
  bool stop = false;       // the searcher is to end
  int restarts = 0;        // searches that ended without a word, in a row
  SteadyTime booked;       // up to when the time of its search is written down

  // Its devices.
  int usable = 1;                          // that can work on it, at the last tick
  SteadyTime last_usable;                  // when one could last
  int64_t served = 0;                      // the round in which it was given one last
  double pace_s = 1;                       // of a device for a candidate, lately
  std::map<std::string, int64_t> refused;  // by hosts: they cannot measure the workload; tokens

  const std::string& model() const { return device.target().name(); }
  bool HasWork() const { return searching && !stop && candidates.AnyWait(); }
};

// The workloads of a job in the database. InvalidArgument where this version cannot read one.
absl::StatusOr<std::vector<Workload>> ParseWorkloads(const std::vector<WorkloadUse>& uses);

class Jobs {
 public:
  Jobs(const FleetOptions& options, Outbox& outbox, Changes& changes)
      : options_(options), outbox_(outbox), changes_(changes) {}

  // Takes up a job as the database has it. InvalidArgument where this version cannot go on with it.
  absl::Status Recover(const v1::Job& job, tuner::Records& records);
  // It has failed for that.
  absl::Status GiveUp(const v1::Job& job, const std::string& why, tuner::Records& records);

  void Create(const std::string& tenant, const std::string& method, const std::string& request_id,
              const v1::JobSpec& spec, std::vector<Workload> workloads,
              const Reply<v1::Job>& reply);
  // One that has failed or was cancelled goes on from what the database has of it. `job` is the
  // caller's, as it was read a moment ago. `workloads` as ParseWorkloads gives them.
  void Retry(const Caller& caller, v1::Job job, const std::string& request_id,
             std::vector<Workload> workloads, const Reply<v1::Job>& reply);
  // Of a job that is there, readable and the caller's.
  void Update(const Caller& caller, int64_t id, const JobUpdate& update,
              const Reply<v1::Job>& reply);
  // Asked by the caller; whether that is a job of his.
  bool Cancel(const Caller& caller, int64_t id);
  // What was written by then is in the reply, or why it was not written where `must` have been.
  void ReplyWhenWritten(const Caller& caller, int64_t id, bool must, const Reply<v1::Job>& reply);
  // As Engine has it.
  void ReportRuns(ActiveJob& job, const std::string& model, std::vector<WorkloadRun> runs);

  // nullptr: it has ended, or never was.
  ActiveJob* Find(int64_t id);
  const ActiveJob* Find(int64_t id) const;
  std::map<int64_t, ActiveJob>& all() { return jobs_; }
  const std::map<int64_t, ActiveJob>& all() const { return jobs_; }

  void SetState(ActiveJob& job, v1::Job::State state);
  void Cancel(ActiveJob& job, const std::string& why);
  // The last event; nothing where it is on its way.
  void End(ActiveJob& job, v1::Job::State state, v1::Job::StopReason reason,
           const std::string& error);
  // Of one that is cancelled and has nothing left at work.
  void EndCancelled(ActiveJob& job);

  // The number of the next trial, of any job.
  int64_t& next_trial() { return next_trial_; }

 private:
  // As the database has it, where the job waits for a searcher or is being cancelled; without
  // candidates that nobody waits for. To be called in a write.
  absl::StatusOr<ActiveJob> Load(const v1::Job& message, std::vector<Workload> workloads,
                                 tuner::Records& records) const;
  absl::Status CheckQuota(const std::string& tenant, tuner::Records& records) const;
  void Add(ActiveJob job);

  const FleetOptions& options_;
  Outbox& outbox_;
  Changes& changes_;
  std::map<int64_t, ActiveJob> jobs_;
  int64_t next_trial_ = 1;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_JOBS_JOBS_H_
