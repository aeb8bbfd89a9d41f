// What the searchers of jobs are given to do, and what they ask.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "measure/run/messages.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/fleet/cost.h"
#include "server/fleet/fleet_state.h"

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

}  // namespace

void FleetState::SearchEnded(int64_t id) {
  --searchers_;
  ForgetSearching(id);
  if (ActiveJob* job = FindJob(id)) {
    job->searching = false;
    FinishCancelling(*job);
    Enqueue(*job);
  }
  StartJobs();
}

std::optional<searcher::Setup> FleetState::PrepareSearch(int64_t id, const std::string& database) {
  ActiveJob* job = FindJob(id);
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
    EndJob(*job, job->errors.empty() ? v1::Job::STATE_SUCCEEDED : v1::Job::STATE_FAILED,
           v1::Job::STOP_REASON_UNSPECIFIED, absl::StrJoin(job->errors, "; "));
    return std::nullopt;
  }
  const int number = static_cast<int>(next - job->uses.begin());
  // Nobody waits for what another workload has left.
  std::erase_if(job->candidates, [&](const auto& entry) {
    const TrialRow& row = entry.second.row;
    return row.state != v1::Trial::STATE_LEASED && (row.workload != number || row.is_final);
  });
  std::erase_if(job->queue, [&](int64_t trial) { return !job->candidates.contains(trial); });
  job->workload = number;
  job->booked = SteadyNow();
  job->finals.reset();
  job->results.clear();
  job->unclaimed.clear();
  job->best_us = next->best_us;
  job->outstanding.clear();
  job->refused.clear();

  const Workload& program = job->workloads[number];
  if (absl::Status s = CheckCost(*program, measure::FromProto(job->device).target); !s.ok()) {
    EndJob(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED, std::string(s.message()));
    return std::nullopt;
  }
  const v1::Budget& budget = job->spec.budget();
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
  setup.set_plateau(budget.plateau());
  bool used_up = false;
  if (budget.trials() > 0) {
    setup.set_trials(budget.trials() - next->trials);
    used_up = setup.trials() <= 0;
  }
  if (const double seconds = SecondsOf(budget.search_duration()); seconds > 0) {
    setup.set_seconds(seconds - next->search_s);
    used_up |= setup.seconds() <= 0;
  }
  if (used_up) {
    setup.set_trials(-1);
    setup.set_seconds(0);
  }
  for (auto& [trial, candidate] : job->candidates) {
    candidate.number = -1;
    if (candidate.row.workload != number || candidate.row.is_final) continue;
    setup.add_outstanding(candidate.row.point);
    job->outstanding.emplace(candidate.row.point, trial);
  }
  return setup;
}

void FleetState::BookTime(ActiveJob& job) {
  const SteadyTime now = SteadyNow();
  const double seconds = absl::ToDoubleSeconds(now - job.booked);
  job.booked = now;
  job.uses[job.workload].search_s += seconds;
  Write([=, id = job.id, number = job.workload](
            tuner::Records& records) { return AddSearchTime(records, id, number, seconds); },
        nullptr, Persistence::kUntilStored);
}

void FleetState::SetRestarts(ActiveJob& job, int restarts) {
  if (job.restarts == restarts) return;
  job.restarts = restarts;
  Write([=, id = job.id](
            tuner::Records& records) { return server::SetRestarts(records, id, restarts); },
        nullptr, Persistence::kUntilStored);
}

bool FleetState::SearchDone(int64_t id, const absl::StatusOr<searcher::Done>& done) {
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->ending) return false;
  BookTime(*job);
  if (!done.ok() && !job->stop) {
    LogEvent(Severity::kError, "searcher_lost",
             {{"job", JobName(id)}, {"error", std::string(done.status().message())}});
    SetRestarts(*job, job->restarts + 1);
    if (job->restarts < kMaxRestarts) return true;
    EndJob(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED,
           std::string(done.status().message()));
    return false;
  }
  SetRestarts(*job, 0);
  const bool ended = done.ok() && done->code() == 0 && done->stop_reason() != "interrupted";
  WorkloadUse& use = job->uses[job->workload];
  use.ended = ended;
  if (ended) {
    Write([=, number = job->workload, default_us = done->default_us()](
              tuner::Records& records) { return EndWorkload(records, id, number, default_us); },
          nullptr, Persistence::kUntilStored);
  }
  if (!ended) {
    if (!job->stop) {
      EndJob(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED, done->error());
    }
    return false;
  }
  if (!done->found()) {
    job->errors.push_back(absl::StrCat("no valid schedule of ", job->workloads[job->workload]->op,
                                       " among ", use.trials, " trials (", done->failures(), ")"));
  }
  const bool all =
      std::all_of(job->uses.begin(), job->uses.end(), [](const WorkloadUse& u) { return u.ended; });
  if (all && !job->cancelling) {
    EndJob(*job, job->errors.empty() ? v1::Job::STATE_SUCCEEDED : v1::Job::STATE_FAILED,
           StopReasonOf(done->stop_reason()), absl::StrJoin(job->errors, "; "));
  }
  return !all;
}

void FleetState::Ask(int64_t id, const searcher::FromSearcher& question) {
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->stop) return;
  job->default_point = question.default_point();
  for (const auto& proposal : question.exchange().proposals()) Propose(*job, proposal, false);
  if (question.has_finals()) {
    job->finals.emplace();
    job->finals->budget_s = question.finals().budget_s();
    job->finals->queued = question.finals().finalists_size() > 0;
    for (const auto& finalist : question.finals().finalists()) Propose(*job, finalist, true);
  }
  ServeWaiters(job->device.target().name());
}

bool FleetState::AnswerIsReady(int64_t id, bool finals) const {
  // The job cannot go while its searcher is answered, unless it is ending.
  const auto it = jobs_.find(id);
  if (it == jobs_.end() || it->second.stop) return true;
  const ActiveJob& job = it->second;
  if (!finals) return !job.results.empty();
  return job.finals && job.finals->results.size() == job.finals->ids.size();
}

searcher::ToSearcher FleetState::TakeAnswer(int64_t id, bool finals) {
  searcher::ToSearcher answer;
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->stop) {
    answer.set_stop(true);
    return answer;
  }
  answer.set_wanted(kInFlightPerDevice * std::max(1, job->usable));
  if (finals) {
    for (int64_t trial : job->finals->ids) {
      searcher::Result& result = *answer.add_results();
      *result.mutable_result() = job->finals->results[trial];
    }
    job->finals.reset();
    return answer;
  }
  for (searcher::Result& result : job->results) *answer.add_results() = std::move(result);
  job->results.clear();
  return answer;
}

void FleetState::Propose(ActiveJob& job, const searcher::Proposal& proposal, bool is_final) {
  if (!is_final) {
    auto early = job.unclaimed.find(proposal.point());
    if (early != job.unclaimed.end()) {
      searcher::Result result;
      result.set_number(proposal.number());
      *result.mutable_result() = std::move(early->second);
      job.results.push_back(std::move(result));
      job.unclaimed.erase(early);
      return;
    }
    auto known = job.outstanding.find(proposal.point());
    if (known != job.outstanding.end()) {
      auto candidate = job.candidates.find(known->second);
      job.outstanding.erase(known);
      if (candidate != job.candidates.end()) {
        candidate->second.number = proposal.number();
        return;
      }
    }
  }
  Candidate candidate;
  candidate.number = proposal.number();
  candidate.row.id = next_trial_++;
  candidate.row.job = job.id;
  candidate.row.workload = job.workload;
  candidate.row.point = proposal.point();
  candidate.row.steps = proposal.steps();
  candidate.row.is_final = is_final;
  if (is_final) {
    job.finals->ids.push_back(candidate.row.id);
  } else {
    job.queue.push_back(candidate.row.id);
  }
  job.candidates.emplace(candidate.row.id, std::move(candidate));
}

void FleetState::TakeResult(ActiveJob& job, int64_t id, const v1::TrialResult& result) {
  auto it = job.candidates.find(id);
  if (it == job.candidates.end()) return;
  const Candidate candidate = std::move(it->second);
  job.candidates.erase(it);
  // A result that came after its lease had ended: it needs no other device.
  if (candidate.row.state == v1::Trial::STATE_PROPOSED) std::erase(job.queue, id);
  const TrialRow& row = candidate.row;
  if (!row.is_final) ++job.uses[row.workload].trials;
  SetRestarts(job, 0);  // what its searchers do is not in vain
  if (row.workload != job.workload) return;
  if (result.outcome() == v1::OUTCOME_OK && (job.best_us == 0 || result.time_us() < job.best_us)) {
    job.best_us = job.uses[row.workload].best_us = result.time_us();
  }
  if (row.is_final) {
    const bool asked = job.finals && std::find(job.finals->ids.begin(), job.finals->ids.end(),
                                               id) != job.finals->ids.end();
    if (asked) {
      job.finals->results[id] = result;
      job.finals->queued &= !WaitingFinals(job).empty();
    }
  } else if (candidate.number >= 0) {
    searcher::Result taken;
    taken.set_number(candidate.number);
    *taken.mutable_result() = result;
    job.results.push_back(std::move(taken));
  } else {
    job.unclaimed[row.point] = result;
  }
}

}  // namespace heddle::server
