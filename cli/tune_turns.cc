#include "cli/tune_turns.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/interrupt.h"
#include "measure/run/processes/kept_processes.h"

namespace heddle::cli {
namespace {

using measure::DeviceInfo;
using search_space::TensorProgram;
using tuner::SessionReport;

void AddTurn(Tuned turn, Turns& turns) {
  if (!turns.tuned) {
    turns.tuned = std::move(turn);
    return;
  }
  SessionReport& all = turns.tuned->report;
  SessionReport& last = turn.report;
  all.stop = last.stop;
  all.since_improvement = last.since_improvement;
  all.trials += last.trials;
  all.ok += last.ok;
  for (const auto& [kind, count] : last.failed) all.failed[kind] += count;
  if (!last.last_failure.empty()) all.last_failure = last.last_failure;
  all.default_us = last.default_us;
  all.naive_us = last.naive_us;
  all.best = std::move(last.best);
  all.times.insert(all.times.end(), last.times.begin(), last.times.end());
  all.seconds += last.seconds;
  all.spent += last.spent;
}

std::vector<double> WeightsOf(const std::vector<TuneJob>& jobs) {
  std::vector<double> weights;
  for (const TuneJob& job : jobs) weights.push_back(static_cast<double>(job.weight));
  return weights;
}

}  // namespace

bool IsItsOwn(const absl::Status& failed) {
  return failed.code() == absl::StatusCode::kInvalidArgument ||
         failed.code() == absl::StatusCode::kFailedPrecondition ||
         failed.code() == absl::StatusCode::kAborted;
}

Tuning::Tuning(const TuneFlags& flags, const std::vector<TuneJob>& jobs, size_t devices)
    : flags_(flags),
      jobs_(jobs),
      at_a_time_(std::min(devices, jobs.size())),
      budget_(flags.trials, flags.seconds, WeightsOf(jobs)),
      working_(devices),
      turns_(jobs.size()) {}

void Tuning::Work(const DeviceInfo& device, tuner::Records& records) {
  std::set<size_t> failed_here;
  measure::KeptProcesses kept;  // from turn to turn
  std::unique_lock lock(mutex_);
  while (!Interrupted()) {
    const auto turn = budget_.Next(failed_here);
    if (!turn && running_ == 0) return;
    if (!turn) {
      changed_.wait(lock);
      continue;
    }
    ++running_;
    SayTurn(*turn, device);
    TuneFlags limited = flags_;
    limited.trials = turn->trials;
    limited.seconds = turn->seconds;
    const std::optional<Tuned>& before = turns_[turn->workload].tuned;
    if (before) limited.since_improvement = before->report.since_improvement;
    lock.unlock();
    auto tuned = TuneOne(limited, jobs_[turn->workload].program, device, at_a_time_, records, kept);
    lock.lock();
    --running_;
    changed_.notify_all();
    if (tuned.ok()) {
      Book(*turn, *std::move(tuned), device);
      continue;
    }
    budget_.GiveBack(*turn);
    if (jobs_.size() == 1 || !IsItsOwn(tuned.status())) {
      Leave(turn->workload, tuned.status(), device);
      return;
    }
    Say(absl::StrCat("heddle: ", Place(turn->workload, device), tuned.status().message()));
    turns_[turn->workload].failed = tuned.status();
    failed_here.insert(turn->workload);
  }
}

std::string Tuning::Count(size_t workload) const {
  return jobs_.size() > 1 ? absl::StrCat("[", workload + 1, "/", jobs_.size(), "] ") : "";
}

std::string Tuning::Place(size_t workload, const DeviceInfo& device) const {
  return at_a_time_ > 1 ? absl::StrCat(Count(workload), "on ", device.id, ": ") : "";
}

void Tuning::SayTurn(const tuner::SharedBudget::Turn& turn, const DeviceInfo& device) const {
  const TensorProgram& program = *jobs_[turn.workload].program;
  Say(absl::StrCat(Count(turn.workload), turns_[turn.workload].tuned ? "More of " : "Tuning ",
                   program.op, " ", ShapeText(program), " ", search_space::NameOf(program.dtype),
                   " on ", device.id, " (", device.target.name, "), ", flags_.l2, " L2"));
}

void Tuning::Book(const tuner::SharedBudget::Turn& turn, Tuned tuned, const DeviceInfo& device) {
  Turns& own = turns_[turn.workload];
  own.failed = absl::OkStatus();
  budget_.Report(turn, tuned.report);
  if (at_a_time_ > 1) Say(Place(turn.workload, device));
  SayResult(tuned, flags_.l2, jobs_[turn.workload].command_line);
  AddTurn(std::move(tuned), own);
}

void Tuning::Leave(size_t workload, absl::Status failed, const DeviceInfo& device) {
  if (--working_ == 0) {
    turns_[workload].failed = std::move(failed);
    return;
  }
  Say(absl::StrCat("heddle: ", device.id, " takes no further turn, ", working_,
                   working_ == 1 ? " other goes" : " others go", " on: ", failed.message()));
}

}  // namespace heddle::cli
