// Waiting for a server's job as if it ran here.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/remote.h"
#include "cli/tuned.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"

namespace heddle::cli {
namespace {

tuner::StopReason StopReasonOf(const v1::Job& job) {
  switch (job.stop_reason()) {
    case v1::Job::STOP_REASON_SECONDS:
      return tuner::StopReason::kSeconds;
    case v1::Job::STOP_REASON_PLATEAU:
      return tuner::StopReason::kPlateau;
    case v1::Job::STOP_REASON_EXHAUSTED:
      return tuner::StopReason::kExhausted;
    default:
      return job.state() == v1::Job::STATE_SUCCEEDED ? tuner::StopReason::kTrials
                                                     : tuner::StopReason::kInterrupted;
  }
}

class Follower {
 public:
  explicit Follower(client::Client& client)
      : client_(client), printer_(stderr, isatty(STDERR_FILENO) != 0, TerminalWidth() - 1) {}

  absl::Status Begin(const v1::Job& job);
  void See(const v1::JobEvent& event);
  const v1::Job& job() const { return job_; }
  // Of workload `index`, as `tune` has it.
  Tuned ResultOf(size_t index) const;

 private:
  void Adopt(const v1::Job& job);
  void Count(const v1::Trial& trial);
  void FindTarget();
  tuner::Roofline RooflineOf(size_t index) const {
    return tuner::RooflineOf(*programs_[index], target_, l2());
  }
  measure::L2Policy l2() const {
    return PolicyOf(job_.spec().l2() == v1::L2_POLICY_WARM ? "warm" : "cold");
  }

  client::Client& client_;
  tuner::ProgressPrinter printer_;
  v1::Job job_;
  std::vector<Workload> programs_;
  std::vector<tuner::Progress> progress_;
  std::vector<absl::Time> began_;
  std::vector<tuner::TrialTimes> times_;
  search_space::Target target_;
  bool target_known_ = false;
  v1::Job::State shown_ = v1::Job::STATE_UNSPECIFIED;
};

absl::Status Follower::Begin(const v1::Job& job) {
  for (const v1::WorkloadProgress& workload : job.workloads()) {
    HEDDLE_ASSIGN_OR_RETURN(program, search_space::ParseWorkload(workload.workload().text()));
    programs_.push_back(std::make_shared<const search_space::TensorProgram>(std::move(program)));
  }
  progress_.resize(programs_.size());
  began_.resize(programs_.size(), absl::InfiniteFuture());
  times_.resize(programs_.size());
  Adopt(job);
  return absl::OkStatus();
}

void Follower::Adopt(const v1::Job& job) {
  job_ = job;
  for (size_t i = 0; i < progress_.size() && i < static_cast<size_t>(job.workloads_size()); ++i) {
    const v1::WorkloadProgress& from = job.workloads(static_cast<int>(i));
    tuner::Progress& to = progress_[i];
    to.trials = static_cast<int>(from.trials());
    to.trial_budget = static_cast<int>(job.spec().budget().trials());
    to.seconds_budget = SecondsOf(job.spec().budget().search_duration());
    to.best_us = from.best_us();
    to.failed.clear();
    for (const auto& [name, count] : from.failed()) {
      to.failed[measure::ParseOutcome(name).value_or(measure::Outcome::kWorkerLost)] =
          static_cast<int>(count);
    }
  }
}

void Follower::FindTarget() {
  if (target_known_ || job_.device_model().empty()) return;
  target_known_ = true;
  const auto devices = AllDevices(client_);
  if (!devices.ok()) return;  // without it the share of the roofline is not shown
  for (const v1::FleetDevice& device : *devices) {
    if (device.device().target().name() != job_.device_model()) continue;
    target_ = measure::FromProto(device.device()).target;
    return;
  }
}

void Follower::Count(const v1::Trial& trial) {
  const size_t index = static_cast<size_t>(trial.workload());
  if (index >= progress_.size() || trial.final()) return;
  tuner::Progress& progress = progress_[index];
  const measure::TrialResult result = measure::FromProto(trial.result());
  const bool ok = result.outcome == measure::Outcome::kOk;
  ++progress.trials;
  if (!ok) ++progress.failed[result.outcome];
  if (ok && (progress.best_us == 0 || result.time_us < progress.best_us)) {
    progress.best_us = result.time_us;
  }
  times_[index].push_back(ok ? result.time_us : 0);
}

void Follower::See(const v1::JobEvent& event) {
  const bool snapshot = event.has_job();
  if (event.has_trial() && !snapshot) Count(event.trial());
  if (snapshot) {
    if (event.has_trial() && !event.trial().final() &&
        static_cast<size_t>(event.trial().workload()) < times_.size()) {
      const auto& result = event.trial().result();
      times_[event.trial().workload()].push_back(
          result.outcome() == v1::OUTCOME_OK ? result.time_us() : 0);
    }
    Adopt(event.job());
  }
  job_.set_state(event.state());
  if (shown_ != event.state()) {
    shown_ = event.state();
    printer_.Note(absl::StrCat(job_.name(), ": ", WordOf(shown_)));
  }
  if (!event.has_trial()) return;
  if (job_.device_model().empty()) {
    // The model is in the job, which the events of trials do not carry.
    auto job = client_.GetJob(job_.name());
    if (job.ok()) job_.set_device_model(job->device_model());
  }
  FindTarget();
  const size_t index = static_cast<size_t>(event.trial().workload());
  if (index >= progress_.size()) return;
  const absl::Time now = TimeOf(event.event_time());
  began_[index] = std::min(began_[index], index == 0 ? TimeOf(job_.start_time()) : now);
  tuner::Progress& progress = progress_[index];
  progress.seconds = absl::ToDoubleSeconds(now - began_[index]);
  progress.roofline = RooflineOf(index);
  printer_.Show(progress);
}

Tuned Follower::ResultOf(size_t index) const {
  const v1::WorkloadProgress& from = job_.workloads(static_cast<int>(index));
  tuner::SessionReport report;
  report.stop = StopReasonOf(job_);
  report.trials = static_cast<int>(from.trials());
  report.ok = static_cast<int>(from.ok());
  report.failed = progress_[index].failed;
  report.default_us = from.default_us();
  report.times = times_[index];
  report.seconds = absl::ToDoubleSeconds(TimeOf(job_.end_time()) - TimeOf(job_.start_time()));
  if (from.has_best()) {
    auto steps = search_space::ParseSteps(from.best().steps());
    if (steps.ok()) {
      report.best = tuner::Contender{from.best().point(), *std::move(steps),
                                     measure::FromProto(from.best().result()), true};
    }
  }
  return {programs_[index], std::move(report), RooflineOf(index)};
}

}  // namespace

Result FollowJob(client::Client& client, const std::string& id, bool json, double seconds) {
  const auto deadline =
      SteadyNow() + (seconds > 0 ? absl::Seconds(seconds) : absl::InfiniteDuration());
  HEDDLE_ASSIGN_OR_RETURN(job, client.GetJob(id));
  Follower follower(client);
  HEDDLE_RETURN_IF_ERROR(follower.Begin(job));
  std::jthread timer([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && SteadyNow() < deadline) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    if (!stop.stop_requested()) client.Cancel();
  });
  // From the beginning, so that the curve is complete.
  absl::Status watched =
      client.WatchJob(id, 0, [&](const v1::JobEvent& event) { follower.See(event); });
  timer.request_stop();
  if (absl::IsCancelled(watched)) {
    const std::string still = absl::StrCat(id, " goes on: `heddle wait ", id,
                                           "` waits for it, `heddle cancel ", id, "` ends it");
    if (Interrupted()) {
      Say(still);
      return kInterrupted;
    }
    return absl::DeadlineExceededError(still);
  }
  HEDDLE_RETURN_IF_ERROR(watched);

  const v1::Job& ended = follower.job();
  const std::string l2 = ended.spec().l2() == v1::L2_POLICY_WARM ? "warm" : "cold";
  int exit_code = ended.state() == v1::Job::STATE_SUCCEEDED ? kDone : kFailed;
  if (exit_code != kDone) {
    Say(absl::StrCat("heddle: ", id, " ended ", WordOf(ended.state()), ": ", ended.error()));
  }
  Json all = Json::array();
  for (int i = 0; i < ended.workloads_size(); ++i) {
    Tuned tuned = follower.ResultOf(static_cast<size_t>(i));
    SayResult(tuned, l2, "");
    Json one = ToJson(tuned, ended.device_model(), l2, 1);
    one["job"] = id;
    one["state"] = WordOf(ended.state());
    all.push_back(std::move(one));
    if (!tuned.report.best && tuned.report.trials > 0 && tuned.report.ok == 0) {
      Say("heddle: " + NoValidSchedule(tuned.report));
      exit_code = kNoValidSchedule;
    }
  }
  if (json) PrintJson(all.size() == 1 ? all[0] : all);
  return exit_code;
}

}  // namespace heddle::cli
