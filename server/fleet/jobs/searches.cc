#include "server/fleet/jobs/searches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/fleet/jobs/cost.h"

namespace heddle::server {
namespace {

// A search that ends without a word so often in a row fails its job.
constexpr int kMaxRestarts = 3;

v1::Job::StopReason StopReasonOf(const std::string& name) {
  if (name == "trials") return v1::Job::STOP_REASON_TRIALS;
  if (name == "seconds") return v1::Job::STOP_REASON_SECONDS;
  if (name == "plateau") return v1::Job::STOP_REASON_PLATEAU;
  if (name == "exhausted") return v1::Job::STOP_REASON_EXHAUSTED;
  return v1::Job::STOP_REASON_UNSPECIFIED;
}

// What is left of the job's budget for a workload.
void SetBudget(const v1::Budget& budget, const WorkloadUse& used, searcher::Setup& setup) {
  setup.set_plateau(budget.plateau());
  bool used_up = false;
  if (budget.trials() > 0) {
    setup.set_trials(budget.trials() - used.trials);
    used_up = setup.trials() <= 0;
  }
  if (const double seconds = SecondsOf(budget.search_duration()); seconds > 0) {
    setup.set_seconds(seconds - used.search_s);
    used_up |= setup.seconds() <= 0;
  }
  if (used_up) {
    setup.set_trials(-1);
    setup.set_seconds(0);
  }
}

}  // namespace

ActiveJob* Searches::Searched(int64_t id) const {
  ActiveJob* job = jobs_.Find(id);
  return job == nullptr || !job->searching ? nullptr : job;
}

void Searches::EndJob(ActiveJob& job, v1::Job::StopReason reason) {
  jobs_.End(job, job.errors.empty() ? v1::Job::STATE_SUCCEEDED : v1::Job::STATE_FAILED, reason,
            absl::StrJoin(job.errors, "; "));
}

std::optional<searcher::Setup> Searches::Prepare(int64_t id, const std::string& database) {
  ActiveJob* job = Searched(id);
  if (job == nullptr || job->stop) return std::nullopt;
  const auto next = std::find_if(job->uses.begin(), job->uses.end(),
                                 [](const WorkloadUse& use) { return !use.ended; });
  if (next == job->uses.end()) {
    // A server was killed when it had written the last search's end and not yet the job's.
    for (size_t i = 0; i < job->uses.size(); ++i) {
      if (job->uses[i].best_us > 0) continue;
      job->errors.push_back(absl::StrCat("no valid schedule of ", job->workloads[i]->op, " among ",
                                         job->uses[i].trials, " trials"));
    }
    EndJob(*job, v1::Job::STOP_REASON_UNSPECIFIED);
    return std::nullopt;
  }
  const int number = static_cast<int>(next - job->uses.begin());
  job->workload = number;
  job->booked = options_.steady();
  job->best_us = next->best_us;
  job->default_final.reset();
  job->refused.clear();
  const std::vector<std::string> outstanding = job->candidates.Begin(number);

  const Workload& program = job->workloads[number];
  if (absl::Status s = CheckCost(*program, measure::FromProto(job->device).target); !s.ok()) {
    jobs_.End(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED,
              std::string(s.message()));
    return std::nullopt;
  }
  searcher::Setup setup;
  setup.set_database(database);
  setup.set_workload(program->canonical_text);
  setup.set_job(id);
  setup.set_workload_number(number);
  *setup.mutable_device() = job->device;
  setup.set_l2(job->spec.l2());
  setup.set_search(job->spec.search());
  // Another stretch of random numbers than that of the trials which are known already.
  setup.set_seed(std::max<uint64_t>(1, job->spec.seed()) + 1000003 * next->trials);
  SetBudget(job->spec.budget(), *next, setup);
  for (const std::string& point : outstanding) setup.add_outstanding(point);
  return setup;
}

void Searches::BookTime(ActiveJob& job) {
  const SteadyTime now = options_.steady();
  const double seconds = absl::ToDoubleSeconds(now - job.booked);
  job.booked = now;
  job.uses[job.workload].search_s += seconds;
  outbox_.Write(
      [=, id = job.id, number = job.workload](tuner::Records& records) {
        return AddSearchTime(records, id, number, seconds);
      },
      nullptr, Persistence::kUntilStored);
}

void Searches::SetRestarts(ActiveJob& job, int restarts) {
  if (job.restarts == restarts) return;
  job.restarts = restarts;
  outbox_.Write([=, id = job.id](
                    tuner::Records& records) { return server::SetRestarts(records, id, restarts); },
                nullptr, Persistence::kUntilStored);
}

bool Searches::Done(int64_t id, const absl::StatusOr<searcher::Done>& done) {
  ActiveJob* job = Searched(id);
  if (job == nullptr || job->ending) return false;
  BookTime(*job);
  if (!done.ok() && !job->stop) {
    LogEvent(Severity::kError, "searcher_lost",
             {{"job", JobName(id)}, {"error", std::string(done.status().message())}});
    SetRestarts(*job, job->restarts + 1);
    if (job->restarts < kMaxRestarts) return true;
    jobs_.End(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED,
              std::string(done.status().message()));
    return false;
  }
  SetRestarts(*job, 0);
  const bool ended = done.ok() && done->code() == 0 && done->stop_reason() != "interrupted";
  WorkloadUse& use = job->uses[job->workload];
  use.ended = ended;
  if (!ended) {
    if (!job->stop) {
      jobs_.End(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED, done->error());
    }
    return false;
  }
  outbox_.Write(
      [=, number = job->workload, default_us = done->default_us()](tuner::Records& records) {
        return EndWorkload(records, id, number, default_us);
      },
      nullptr, Persistence::kUntilStored);
  if (!done->found()) {
    job->errors.push_back(absl::StrCat("no valid schedule of ", job->workloads[job->workload]->op,
                                       " among ", use.trials, " trials (", done->failures(), ")"));
  }
  const bool all =
      std::all_of(job->uses.begin(), job->uses.end(), [](const WorkloadUse& u) { return u.ended; });
  if (all && !job->cancelling) EndJob(*job, StopReasonOf(done->stop_reason()));
  return !all;
}

void Searches::Ask(int64_t id, const searcher::FromSearcher& question) {
  ActiveJob* job = Searched(id);
  if (job == nullptr || job->stop) return;
  job->default_point = question.default_point();
  TrialRow row;
  row.job = id;
  row.workload = job->workload;
  for (const auto& proposal : question.exchange().proposals()) {
    job->candidates.Propose(proposal, row, jobs_.next_trial());
  }
  if (question.has_finals()) {
    const auto& finalists = question.finals().finalists();
    job->candidates.AskFinals(question.finals().budget_s(), !finalists.empty());
    row.is_final = true;
    for (const auto& finalist : finalists) {
      job->candidates.Propose(finalist, row, jobs_.next_trial());
    }
  }
  changes_.to_give.insert(job->model());
}

bool Searches::AnswerIsReady(int64_t id, bool finals) const {
  // The job cannot go while its searcher is answered, unless it is ending.
  const ActiveJob* job = Searched(id);
  return job == nullptr || job->stop || job->candidates.AnswerIsReady(finals);
}

searcher::ToSearcher Searches::TakeAnswer(int64_t id, bool finals) {
  searcher::ToSearcher answer;
  ActiveJob* job = Searched(id);
  if (job == nullptr || job->stop) {
    answer.set_stop(true);
    return answer;
  }
  answer.set_wanted(kInFlightPerDevice * std::max(1, job->usable));
  for (searcher::Result& result : job->candidates.TakeAnswer(finals)) {
    *answer.add_results() = std::move(result);
  }
  return answer;
}

void Searches::TakeResult(ActiveJob& job, int64_t id, const v1::TrialResult& result) {
  const auto row = job.candidates.TakeResult(id, result);
  if (!row) return;
  if (!row->is_final) ++job.uses[row->workload].trials;
  SetRestarts(job, 0);  // what its searchers do is not in vain
  if (row->workload != job.workload || result.outcome() != v1::OUTCOME_OK) return;
  if (job.best_us == 0 || result.time_us() < job.best_us) {
    job.best_us = job.uses[row->workload].best_us = result.time_us();
  }
}

}  // namespace heddle::server
