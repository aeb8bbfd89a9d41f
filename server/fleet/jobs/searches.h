// What the searchers of jobs are given to do, and what they ask.
#ifndef HEDDLE_SERVER_FLEET_JOBS_SEARCHES_H_
#define HEDDLE_SERVER_FLEET_JOBS_SEARCHES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "heddle/v1/fleet.pb.h"
#include "proto/searcher.pb.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "server/fleet/jobs/jobs.h"

namespace heddle::server {

// FleetState says what each of its calls is for.
class Searches {
 public:
  Searches(const FleetOptions& options, Outbox& outbox, Changes& changes, Jobs& jobs)
      : options_(options), outbox_(outbox), changes_(changes), jobs_(jobs) {}

  std::optional<searcher::Setup> Prepare(int64_t job, const std::string& database);
  void Ask(int64_t job, const searcher::FromSearcher& question);
  bool AnswerIsReady(int64_t job, bool finals) const;
  searcher::ToSearcher TakeAnswer(int64_t job, bool finals);
  bool Done(int64_t job, const absl::StatusOr<searcher::Done>& done);

  // What became of a candidate, for the job's progress and for its searcher.
  void TakeResult(ActiveJob& job, int64_t candidate, const v1::TrialResult& result);
  // Writes down the time that the job's search took since the last time, so that what a lost
  // searcher or server has used of a budget stays used.
  void BookTime(ActiveJob& job);

 private:
  // The job of a searcher that is at work; nullptr where it has ended. It may have begun again
  // since (Jobs::Retry): then it waits until its first searcher is gone.
  ActiveJob* Searched(int64_t job) const;
  // The job's end, when its workloads have ended.
  void EndJob(ActiveJob& job, v1::Job::StopReason reason);
  void SetRestarts(ActiveJob& job, int restarts);

  const FleetOptions& options_;
  Outbox& outbox_;
  Changes& changes_;
  Jobs& jobs_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_JOBS_SEARCHES_H_
