#include "measure/run/device_worker.h"

#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status.h"
#include "measure/run/processes/confine.h"
#include "measure/run/processes/messages.h"

namespace heddle::measure {
namespace {

// Opening the device, compiling its comparison, uploading, running and checking the naive program,
// which is slow.
constexpr absl::Duration kStartLimit = absl::Minutes(5);
constexpr absl::Duration kSendLimit = absl::Seconds(10);
// How long a process that has closed its socket may take to end by itself.
constexpr absl::Duration kEndGrace = absl::Seconds(2);
// Restarts that fail one after another before the device is given up, and the first pause, which
// doubles.
constexpr int kRestarts = 5;
constexpr absl::Duration kFirstRestartPause = absl::Seconds(1);
// A kernel may take this much longer than the best one before it counts as not returning, and the
// phases of a slow workload this much longer than its naive program (three executions and
// comparisons; the candidate may be the naive program itself).
constexpr double kTimesBest = 20, kTimesNaive = 12;

spdlog::logger& Log() {
  static auto logger = [] {
    auto made = std::make_shared<spdlog::logger>("heddle",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    // Warnings, or as much as $HEDDLE_LOG ("debug", "info", ...) asks for.
    const char* level = getenv("HEDDLE_LOG");
    made->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::warn);
    return made;
  }();
  return *logger;
}

const char* NameOf(worker::Phase phase) {
  switch (phase) {
    case worker::STARTING:
      return "starting";
    case worker::LOADING:
      return "loading";
    case worker::VALIDATING:
      return "validating";
    case worker::FIRST_SAMPLE:
      return "taking the first sample";
    default:
      return "timing";
  }
}

}  // namespace

DeviceWorker::DeviceWorker(worker::Setup setup, const MeasureOptions& options, double fastest_us,
                           ChildOptions child, std::unique_ptr<Subprocess> process)
    : setup_(std::move(setup)),
      options_(options),
      fastest_us_(fastest_us),
      child_(std::move(child)),
      process_(std::move(process)),
      best_s_(options.best_us * 1e-6) {}

DeviceState DeviceWorker::state() const {
  std::lock_guard lock(state_mutex_);
  return state_;
}

double DeviceWorker::spare_s() const {
  std::lock_guard lock(state_mutex_);
  return spare_s_;
}

absl::Status DeviceWorker::Launch() {
  HEDDLE_ASSIGN_OR_RETURN(process, Subprocess::Start("__worker", ConfinementArguments(), child_));
  process_ = std::move(process);
  return absl::OkStatus();
}

void DeviceWorker::OpenAhead() {
  if (process_ != nullptr || !Launch().ok()) return;
  is_new_ = true;
  worker::WorkerRequest request;
  request.set_open(setup_.device());
  process_->Send(request, SteadyNow() + kSendLimit).IgnoreError();
}

absl::Status DeviceWorker::Start(worker::Program naive) {
  *setup_.mutable_naive() = std::move(naive);
  if (process_ != nullptr) {
    absl::Status status = SetUp();
    if (is_new_ || status.ok() || absl::IsCancelled(status) || !gone_.ok()) return status;
    // It may be what earlier programs have left behind, as little as memory in pieces.
    Log().debug("a new worker for {}: {}", setup_.device(), std::string(status.message()));
  }
  return Restart();
}

absl::Status DeviceWorker::Restart() {
  HEDDLE_RETURN_IF_ERROR(Launch());
  return SetUp();
}

// Leaves no process where it fails.
absl::Status DeviceWorker::SetUp() {
  worker::WorkerRequest request;
  *request.mutable_setup() = setup_;
  worker::WorkerEvent event;
  // It may be opening the device, and reads nothing meanwhile.
  const SteadyTime limit = SteadyNow() + kStartLimit;
  absl::Status status = process_->Send(request, limit);
  if (status.ok()) status = process_->Receive(event, limit);
  if (status.ok()) {
    status = FromProto(event.ready().status());
    naive_s_ = event.ready().naive_s();
  } else if (!absl::IsCancelled(status)) {
    HEDDLE_ASSIGN_OR_RETURN(death, Bury(worker::STARTING, status));
    status = absl::UnavailableError(
        absl::StrCat(setup_.device(), " fails on the naive program: ", death.detail));
  }
  if (!status.ok()) process_.reset();
  return status;
}

absl::Status DeviceWorker::EnsureRunning() {
  HEDDLE_RETURN_IF_ERROR(gone_);
  absl::Duration pause = kFirstRestartPause;
  for (int attempt = 1; process_ == nullptr; ++attempt) {
    absl::Status status = Restart();
    if (status.ok() || absl::IsCancelled(status)) return status;
    HEDDLE_RETURN_IF_ERROR(gone_);
    Log().warn("the worker of {} cannot be started again (attempt {} of {}): {}", setup_.device(),
               attempt, kRestarts, std::string(status.message()));
    // A device that computes wrong is not asked again.
    if (attempt == kRestarts || absl::IsFailedPrecondition(status)) {
      gone_ = absl::UnavailableError(
          absl::StrCat(setup_.device(), " no longer works: ", std::string(status.message())));
      return gone_;
    }
    if (child_.stop->Wait(pause)) return absl::CancelledError("stopped");
    pause *= 2;
  }
  return absl::OkStatus();
}

absl::Duration DeviceWorker::LimitOf(worker::Phase phase) const {
  const absl::Duration naive = absl::Seconds(kTimesNaive * naive_s_);
  switch (phase) {
    case worker::STARTING:
      return kStartLimit;
    case worker::LOADING:
      return options_.load_limit;
    case worker::VALIDATING:
      return std::max(options_.validate_limit, naive);
    case worker::FIRST_SAMPLE:
      return std::max(options_.first_sample_limit,
                      best_s_ > 0 ? absl::Seconds(kTimesBest * best_s_) : naive);
    default:
      return absl::InfiniteDuration();
  }
}

// Ends the process after `why`; the result says how it ended and during what. Unavailable when it
// cannot be killed.
absl::StatusOr<TrialResult> DeviceWorker::Bury(worker::Phase phase, const absl::Status& why) {
  const bool timeout = absl::IsDeadlineExceeded(why);
  const pid_t pid = process_->pid();
  absl::StatusOr<ExitStatus> exit = process_->End(timeout ? absl::ZeroDuration() : kEndGrace);
  const std::string words = process_->LastWords();
  process_.reset();
  if (!exit.ok()) {
    gone_ = WedgedError(
        absl::StrCat(setup_.device(), " is stuck: ", std::string(exit.status().message())));
    return gone_;
  }
  TrialResult result;
  if (timeout) {
    result.outcome = Outcome::kRunTimeout;
    result.detail = absl::StrCat("did not return while ", NameOf(phase));
  } else {
    result.outcome = exit->crashed() ? Outcome::kIllegalAccess : Outcome::kWorkerLost;
    result.detail =
        absl::StrCat("the worker ended with ", exit->Describe(), " while ", NameOf(phase));
  }
  Log().debug("worker {}: {}", pid, result.detail);
  if (!words.empty()) absl::StrAppend(&result.detail, "\n", words);
  return result;
}

// `total` bounds all phases together.
absl::StatusOr<DeviceWorker::Answer> DeviceWorker::Ask(const worker::WorkerRequest& request,
                                                       absl::Duration total) {
  const SteadyTime start = SteadyNow(), end = start + total;
  worker::Phase phase = worker::LOADING;
  absl::Status status = process_->Send(request, std::min(end, SteadyNow() + kSendLimit));
  while (status.ok()) {
    worker::WorkerEvent event;
    status = process_->Receive(event, std::min(end, SteadyNow() + LimitOf(phase)));
    if (!status.ok()) break;
    if (event.has_phase()) {
      phase = event.phase();
      continue;
    }
    Answer answer;
    for (const v1::TrialResult& result : event.results().results()) {
      answer.results.push_back(FromProto(result));
    }
    answer.device_lost = event.results().device_lost();
    if (answer.device_lost) {
      absl::StatusOr<TrialResult> death = Bury(phase, absl::UnavailableError("device lost"));
      if (!death.ok()) Log().warn("{}", std::string(death.status().message()));
    } else {
      std::lock_guard lock(state_mutex_);
      state_ = FromProto(event.results().state());
      spare_s_ += event.results().spare_s();
    }
    return answer;
  }
  if (absl::IsCancelled(status)) return status;
  if (absl::IsInvalidArgument(status)) {  // too large to be sent
    return Answer{{}, TrialResult{Outcome::kResourceLimit, std::string(status.message())}};
  }
  absl::StatusOr<TrialResult> death = Bury(phase, status);
  // A worker that cannot be killed is still the end of this candidate.
  if (!death.ok()) {
    return Answer{
        {},
        TrialResult{Outcome::kRunTimeout, absl::StrCat("did not return while ", NameOf(phase), ": ",
                                                       std::string(death.status().message()))}};
  }
  // All of it, since only the worker knew when phases ended.
  double& spent = phase == worker::LOADING      ? death->load_s
                  : phase == worker::VALIDATING ? death->validate_s
                                                : death->time_s;
  spent = SecondsSince(start);
  return Answer{{}, *std::move(death)};
}

void DeviceWorker::Judge(TrialResult& result) {
  is_clean_ = is_clean_ && result.outcome != Outcome::kWrongAnswer;
  if (result.outcome != Outcome::kOk || result.time_us >= fastest_us_) return;
  result.detail =
      absl::StrFormat("%.3g us: the device needs %.3g us at least", result.time_us, fastest_us_);
  result.outcome = Outcome::kImplausible;
  result.time_us = result.ci_low_us = result.ci_high_us = 0;
}

absl::StatusOr<TrialResult> DeviceWorker::Measure(const worker::Program& program) {
  HEDDLE_RETURN_IF_ERROR(EnsureRunning());
  worker::WorkerRequest request;
  worker::Trial& trial = *request.mutable_trial();
  *trial.mutable_program() = program;
  trial.set_budget_s(absl::ToDoubleSeconds(options_.timing_budget));
  trial.set_best_s(best_s_);
  trial.set_screen_out_factor(options_.screen_out_factor);
  const absl::Duration slow = absl::Seconds(2 * kTimesNaive * naive_s_);
  HEDDLE_ASSIGN_OR_RETURN(
      answer, Ask(request, std::max(options_.trial_limit, slow + options_.validate_limit) +
                               options_.timing_budget));
  TrialResult result = answer.results.empty() ? answer.death : answer.results[0];
  // First: what is not possible must not become what others are screened by.
  Judge(result);
  if (result.outcome == Outcome::kOk) {
    const double seconds = result.time_us * 1e-6;
    best_s_ = best_s_ > 0 ? std::min(best_s_, seconds) : seconds;
  }
  return result;
}

absl::StatusOr<DeviceWorker::Answer> DeviceWorker::AskForFinals(
    const std::vector<worker::Program>& programs, absl::Duration budget) {
  HEDDLE_RETURN_IF_ERROR(EnsureRunning());
  worker::WorkerRequest request;
  for (const worker::Program& program : programs)
    *request.mutable_finals()->add_programs() = program;
  request.mutable_finals()->set_budget_s(absl::ToDoubleSeconds(budget));
  const auto count = static_cast<double>(programs.size());
  absl::StatusOr<Answer> answer =
      Ask(request, LimitOf(worker::STARTING) + 2 * budget +
                       count * (options_.trial_limit + LimitOf(worker::VALIDATING)));
  if (answer.ok()) {
    for (TrialResult& result : answer->results) Judge(result);
  }
  return answer;
}

absl::StatusOr<std::vector<TrialResult>> DeviceWorker::MeasureFinals(
    const std::vector<worker::Program>& programs, absl::Duration budget) {
  if (programs.empty()) return std::vector<TrialResult>();
  HEDDLE_ASSIGN_OR_RETURN(together, AskForFinals(programs, budget));
  if (together.is_complete()) return std::move(together.results);
  // One of them took the device away from all; which one is seen when each has it alone.
  Log().debug("measuring the finalists together failed; one at a time now");
  std::vector<TrialResult> results;
  std::vector<size_t> survivors;
  std::vector<worker::Program> surviving;
  for (const worker::Program& program : programs) {
    HEDDLE_ASSIGN_OR_RETURN(alone,
                            AskForFinals({program}, budget / static_cast<double>(programs.size())));
    results.push_back(alone.results.empty() ? std::move(alone.death) : std::move(alone.results[0]));
    if (results.back().outcome != Outcome::kOk) continue;
    survivors.push_back(results.size() - 1);
    surviving.push_back(program);
  }
  // Times compare where they were taken in turns.
  if (survivors.size() < 2 || survivors.size() == programs.size()) return results;
  absl::StatusOr<Answer> again = AskForFinals(surviving, budget);
  if (absl::IsCancelled(again.status())) return again.status();
  for (size_t i = 0; again.ok() && again->is_complete() && i < survivors.size(); ++i) {
    results[survivors[i]] = std::move(again->results[i]);
  }
  return results;
}

}  // namespace heddle::measure
