#include "daemon/device_agent.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "client/backoff.h"
#include "client/connection.h"
#include "measure/run/processes/messages.h"
#include "measure/run/start_measurer.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"

namespace heddle::measure {
namespace {

using v1::ReleaseRequest;
using v1::WorkerStatus;

constexpr double kAcquireWaitS = 20;
constexpr absl::Duration kCallLimit = absl::Seconds(20);

// How many candidates a device without a workload asks for.
constexpr int kFirstCandidates = 8;
// How soon leases and revocations are seen while candidates are being measured.
constexpr absl::Duration kPoll = absl::Milliseconds(50);
// Pauses of a device that failed; so many failures within the window make it unhealthy.
constexpr absl::Duration kFirstPause = absl::Seconds(1), kLastPause = absl::Seconds(60);
constexpr size_t kFailures = 5;
constexpr absl::Duration kFailureWindow = absl::Minutes(10);

std::string KeyOf(const v1::Lease& lease) {
  return absl::StrCat(lease.workload(), "\n", lease.l2(), " ", lease.seed());
}

// A compiler's log may hold anything, a message only UTF-8.
std::string Utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
      .get<std::string>();
}

}  // namespace

DeviceAgent::DeviceAgent(DeviceInfo device, DeviceLock lock, int compile_workers,
                         absl::Duration idle_limit, FleetSession& session, DaemonMetrics& metrics)
    : device_(std::move(device)),
      lock_(std::move(lock)),
      compile_workers_(compile_workers),
      idle_limit_(idle_limit),
      session_(session),
      metrics_(metrics) {
  metrics_.SetState(device_.id, state_);
  acquirer_ = std::thread([this] { AcquireLoop(); });
  measuring_ = std::thread([this] { MeasureLoop(); });
}

DeviceAgent::~DeviceAgent() {
  stop_.Set();
  Drain();
  measuring_.join();
  if (acquirer_.joinable()) acquirer_.join();
}

// ----------------------------------------------------------------------- from the daemon's thread

void DeviceAgent::Drain() {
  drain_.Set();
  changed_.notify_all();
}

void DeviceAgent::Pause(bool paused) {
  {
    std::lock_guard lock(mutex_);
    paused_ = paused;
  }
  changed_.notify_all();
}

void DeviceAgent::Revoke(const std::vector<int64_t>& leases) {
  std::lock_guard lock(mutex_);
  revoked_.insert(leases.begin(), leases.end());
}

v1::WorkerStatus DeviceAgent::Status() const {
  std::lock_guard lock(mutex_);
  WorkerStatus status;
  status.set_device(device_.id);
  const bool draining = state_ != WorkerStatus::STATE_GONE && drain_.IsSet();
  status.set_state(draining ? WorkerStatus::STATE_DRAINING : state_);
  status.set_detail(detail_);
  if (measurer_ != nullptr) *status.mutable_device_state() = ToProto(measurer_->device_state());
  return status;
}

std::optional<int64_t> DeviceAgent::Running() const {
  std::lock_guard lock(mutex_);
  return measurer_ != nullptr ? measurer_->running() : std::nullopt;
}

std::vector<int64_t> DeviceAgent::Leases() const {
  std::lock_guard lock(mutex_);
  std::set<int64_t> leases;
  for (const v1::Lease& lease : inbox_) leases.insert(lease.id());
  for (const auto& [candidate, lease] : lease_of_) leases.insert(lease);
  if (current_) leases.insert(*current_);
  return {leases.begin(), leases.end()};
}

// ------------------------------------------------------------------------------------- acquiring

// How many candidates to ask for now. With mutex_ held.
int DeviceAgent::Wanted() const {
  const bool works = state_ == WorkerStatus::STATE_IDLE || state_ == WorkerStatus::STATE_BUSY;
  if (paused_ || !works || !inbox_.empty() || current_) return 0;
  if (measurer_ == nullptr) return kFirstCandidates;
  const int wanted = measurer_->wanted_in_flight() - static_cast<int>(lease_of_.size());
  return std::clamp(wanted, 0, kMaxCandidates);
}

void DeviceAgent::AcquireLoop() {
  client::Backoff backoff(absl::Milliseconds(100), absl::Seconds(5));
  while (true) {
    v1::AcquireRequest request;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return drain_.IsSet() || Wanted() > 0; });
      if (drain_.IsSet()) return;
      request.set_max(Wanted());
    }
    request.set_device(device_.id);
    // One id for all attempts: a lease whose reply was lost is given again.
    request.set_request_id(client::NewRequestId());
    *request.mutable_wait_duration() = DurationOf(kAcquireWaitS);
    v1::Lease lease;
    const SteadyTime asked = SteadyNow();
    absl::Status status = session_.Call<v1::AcquireRequest, v1::Lease>(
        &v1::Fleet::Stub::async::Acquire, [&] { return request; }, lease,
        absl::Seconds(kAcquireWaitS) + kCallLimit, drain_);
    if (absl::IsCancelled(status)) return;
    if (!status.ok()) {
      LogEvent(Severity::kError, "acquire_refused",
               {{"device", device_.id}, {"detail", std::string(status.message())}});
    }
    if (status.ok() && lease.id() != 0) {
      {
        std::lock_guard lock(mutex_);
        inbox_.push_back(std::move(lease));
      }
      changed_.notify_all();
      backoff.Reset();
    } else if (SteadyNow() - asked < absl::Seconds(kAcquireWaitS / 2)) {
      // An answer that did not wait for work must not be asked for without end.
      if (drain_.Wait(backoff.Next())) return;
    }
  }
}

// ------------------------------------------------------------------------------------- measuring

void DeviceAgent::Enter(State state, const std::string& detail) {
  {
    std::lock_guard lock(mutex_);
    if (state_ == state && detail_ == detail) return;
    if (state_ != state) metrics_.SetState(device_.id, state);
    state_ = state;
    detail_ = Utf8(detail.substr(0, kDetailBytes));
  }
  changed_.notify_all();
  if (state == WorkerStatus::STATE_BUSY || state == WorkerStatus::STATE_IDLE) return;
  LogEvent(detail.empty() ? Severity::kInfo : Severity::kWarning, "device_state",
           {{"device", device_.id}, {"state", WordOf(state)}, {"detail", detail}});
}

void DeviceAgent::MeasureLoop() {
  Enter(WorkerStatus::STATE_CANARY);
  if (absl::Status status = Canary(); !status.ok()) Recover(status);
  SteadyTime worked = SteadyNow();
  while (!stop_.IsSet() && !drain_.IsSet()) {
    DropRevoked();
    std::optional<v1::Lease> lease = TakeLease();
    if (lease) {
      Enter(WorkerStatus::STATE_BUSY);
      Begin(*lease);
      std::lock_guard lock(mutex_);
      current_.reset();
    }
    if (!lease_of_.empty()) {
      Collect(kPoll);
      worked = SteadyNow();
    } else if (lease) {
      worked = SteadyNow();
    } else {
      Enter(WorkerStatus::STATE_IDLE);
      if (SteadyNow() - worked > idle_limit_) EndMeasurer();
    }
    changed_.notify_all();  // there may be room now
  }
  EndAll();
  Enter(WorkerStatus::STATE_GONE);
  ended_ = true;
}

void DeviceAgent::EndAll() {
  acquirer_.join();
  Revoke(Leases());
  DropRevoked();
  FinishPending();
  EndMeasurer();
}

void DeviceAgent::EndMeasurer() {
  std::unique_ptr<Measurer> ended;  // takes a while: after the lock
  std::lock_guard lock(mutex_);
  ended = std::move(measurer_);
}

std::optional<v1::Lease> DeviceAgent::TakeLease() {
  std::unique_lock lock(mutex_);
  if (lease_of_.empty()) {
    changed_.wait_for(lock, absl::ToChronoMilliseconds(kPoll),
                      [this] { return !inbox_.empty() || drain_.IsSet(); });
  }
  if (inbox_.empty() || drain_.IsSet()) return std::nullopt;
  v1::Lease lease = std::move(inbox_.front());
  inbox_.pop_front();
  current_ = lease.id();
  return lease;
}

void DeviceAgent::Begin(const v1::Lease& lease) {
  LogEvent(Severity::kInfo, "lease",
           {{"device", device_.id},
            {"lease", lease.id()},
            {"job", lease.job()},
            {"kind", WordOf(lease.kind())},
            {"candidates", lease.candidates_size()}});
  const bool another = measurer_ == nullptr || measured_workload_ != KeyOf(lease);
  if (another || lease.kind() == v1::Lease::KIND_FINALS) FinishPending();
  if (stop_.IsSet()) return;
  if ((another || measurer_ == nullptr) && !StartFor(lease)) return;
  if (lease.kind() == v1::Lease::KIND_FINALS) {
    MeasureFinals(lease);
  } else {
    Screen(lease);
  }
}

// A measurer for the lease's workload. False: there is none, and the lease was given back.
bool DeviceAgent::StartFor(const v1::Lease& lease) {
  EndMeasurer();
  auto program = search_space::ParseWorkload(lease.workload());
  if (!program.ok()) {
    ReleaseAll(lease, ReleaseRequest::FAULT_WORKLOAD, std::string(program.status().message()));
    return false;
  }
  MeasureOptions options;
  options.l2 = lease.l2() == v1::L2_POLICY_WARM ? L2Policy::kWarm : L2Policy::kCold;
  options.seed = lease.seed();
  options.best_us = lease.best_us();
  options.compile_workers = compile_workers_;
  options.lock = &lock_;
  auto started = StartMeasurer(
      std::make_shared<const search_space::TensorProgram>(*std::move(program)), device_, options);
  if (started.ok()) {
    std::lock_guard lock(mutex_);
    measurer_ = *std::move(started);
    measured_workload_ = KeyOf(lease);
    return true;
  }
  const std::string why(started.status().message());
  // Either the device fails at everything, or only at this.
  Enter(WorkerStatus::STATE_CANARY);
  absl::Status canary = IsWedged(started.status()) ? started.status() : Canary();
  ReleaseAll(lease, canary.ok() ? ReleaseRequest::FAULT_WORKLOAD : ReleaseRequest::FAULT_DEVICE,
             why);
  if (canary.ok()) {
    Enter(WorkerStatus::STATE_IDLE);
  } else {
    Recover(canary);
  }
  return false;
}

void DeviceAgent::Screen(const v1::Lease& lease) {
  std::vector<v1::CandidateResult> unreadable;
  for (const v1::Candidate& candidate : lease.candidates()) {
    auto steps = search_space::ParseSteps(candidate.steps());
    if (!steps.ok()) {
      TrialResult result;
      result.outcome = Outcome::kBuildError;
      result.detail = std::string(steps.status().message());
      unreadable.push_back(ResultOf(candidate.id(), result));
      continue;
    }
    {
      std::lock_guard lock(mutex_);
      // A lease that was given twice is measured once.
      if (!lease_of_.emplace(candidate.id(), lease.id()).second) continue;
    }
    measurer_->Submit({candidate.id(), "", *std::move(steps)});
  }
  if (!unreadable.empty()) Report(lease.id(), unreadable);
}

void DeviceAgent::MeasureFinals(const v1::Lease& lease) {
  std::vector<measure::Candidate> finalists;
  for (const v1::Candidate& candidate : lease.candidates()) {
    auto steps = search_space::ParseSteps(candidate.steps());
    if (!steps.ok()) {
      ReleaseAll(lease, ReleaseRequest::FAULT_WORKLOAD,
                 absl::StrCat("candidate ", candidate.id(), ": ", steps.status().message()));
      return;
    }
    finalists.push_back({candidate.id(), "", *std::move(steps)});
  }
  auto results =
      measurer_->MeasureFinalists(finalists, absl::Seconds(SecondsOf(lease.budget_duration())));
  if (!results.ok()) {
    ReleaseAll(lease, ReleaseRequest::FAULT_DEVICE, std::string(results.status().message()));
    GiveUp(results.status());
    return;
  }
  std::vector<v1::CandidateResult> reported;
  for (size_t i = 0; i < finalists.size(); ++i) {
    reported.push_back(ResultOf(finalists[i].id, (*results)[i]));
  }
  Report(lease.id(), reported);
}

void DeviceAgent::Collect(absl::Duration timeout) {
  std::map<int64_t, std::vector<v1::CandidateResult>> results;
  std::vector<int64_t> done;
  absl::Status error;
  while (done.size() < kMaxCandidates) {
    auto next = measurer_->Next(done.empty() ? timeout : absl::ZeroDuration());
    error = next.status();
    if (!next.ok() || !next->has_value()) break;
    done.push_back((*next)->id);
    results[lease_of_.at(done.back())].push_back(ResultOf(done.back(), (*next)->result));
  }
  for (const auto& [lease, its] : results) Report(lease, its);
  {
    std::lock_guard lock(mutex_);
    for (int64_t id : done) lease_of_.erase(id);
  }
  if (!error.ok()) GiveUp(error);
}

void DeviceAgent::FinishPending() {
  while (!lease_of_.empty() && !stop_.IsSet()) {
    DropRevoked();
    if (!lease_of_.empty()) Collect(kPoll);
  }
}

void DeviceAgent::DropRevoked() {
  std::vector<v1::Lease> unopened;
  std::map<int64_t, std::vector<int64_t>> begun;
  {
    std::lock_guard lock(mutex_);
    if (revoked_.empty()) return;
    for (const v1::Lease& lease : inbox_) {
      if (revoked_.count(lease.id()) > 0) unopened.push_back(lease);
    }
    std::erase_if(inbox_, [&](const v1::Lease& lease) { return revoked_.count(lease.id()) > 0; });
    for (const auto& [candidate, lease] : lease_of_) {
      if (revoked_.count(lease) > 0) begun[lease].push_back(candidate);
    }
    revoked_.clear();
  }
  for (const v1::Lease& lease : unopened) ReleaseAll(lease, ReleaseRequest::FAULT_NONE, "");
  for (const auto& [lease, candidates] : begun) {
    const std::vector<int64_t> back = measurer_->Withdraw(candidates);
    {
      std::lock_guard lock(mutex_);
      for (int64_t id : back) lease_of_.erase(id);
    }
    if (!back.empty()) Release(lease, back, ReleaseRequest::FAULT_NONE, "");
  }
}

// ---------------------------------------------------------------------------- failures of the
// device

// The device is gone: what it had goes to others, except what it cannot be freed of.
void DeviceAgent::GiveUp(const absl::Status& status) {
  const std::string why(status.message());
  std::map<int64_t, std::vector<int64_t>> unstarted;
  const std::optional<int64_t> stuck = IsWedged(status) ? measurer_->running() : std::nullopt;
  for (const auto& [candidate, lease] : lease_of_) {
    if (candidate == stuck) {
      TrialResult result;
      result.outcome = Outcome::kWorkerLost;
      result.detail = why;
      Report(lease, {ResultOf(candidate, result)});
    } else {
      unstarted[lease].push_back(candidate);
    }
  }
  for (const auto& [lease, candidates] : unstarted) {
    Release(lease, candidates, ReleaseRequest::FAULT_DEVICE, why);
  }
  {
    std::lock_guard lock(mutex_);
    lease_of_.clear();
  }
  EndMeasurer();
  Recover(status);
}

// A program with a known answer and a least time: the naive program of a small workload, which
// starting a measurer runs, checks and times.
absl::Status DeviceAgent::Canary() {
  HEDDLE_ASSIGN_OR_RETURN(op,
                          search_space::FindOperator(search_space::BuiltinOperators(), "matmul"));
  HEDDLE_ASSIGN_OR_RETURN(
      program, op.Instantiate({{"m", 64}, {"n", 64}, {"k", 64}}, search_space::DType::kFloat32));
  MeasureOptions options;
  options.compile_workers = 1;
  options.lock = &lock_;
  return StartMeasurer(std::make_shared<const search_space::TensorProgram>(std::move(program)),
                       device_, options)
      .status();
}

// Until the canary passes, or the daemon ends. A wedged device never comes back: nothing new is
// started on it.
void DeviceAgent::Recover(const absl::Status& why) {
  absl::Status status = why;
  client::Backoff backoff(kFirstPause, kLastPause);
  while (!drain_.IsSet()) {
    const SteadyTime now = SteadyNow();
    failures_.push_back(now);
    while (now - failures_.front() > kFailureWindow) failures_.pop_front();
    const std::string detail(status.message());
    if (IsWedged(status)) {
      Enter(WorkerStatus::STATE_WEDGED, detail + "; restart the host, or its driver");
      drain_.Wait(absl::InfiniteDuration());
      return;
    }
    const bool often = failures_.size() >= kFailures;
    Enter(often ? WorkerStatus::STATE_UNHEALTHY : WorkerStatus::STATE_RESTARTING, detail);
    if (drain_.Wait(often ? kLastPause : backoff.Next())) return;
    status = Canary();
    if (status.ok()) {
      Enter(WorkerStatus::STATE_IDLE);
      return;
    }
  }
}

// ------------------------------------------------------------------------------------- reporting

v1::CandidateResult DeviceAgent::ResultOf(int64_t candidate, const TrialResult& result) const {
  v1::CandidateResult message;
  message.set_candidate(candidate);
  *message.mutable_result() = ToProto(result);
  message.mutable_result()->set_detail(Utf8(result.detail.substr(0, kDetailBytes)));
  *message.mutable_device_state() = ToProto(measurer_->device_state());
  return message;
}

void DeviceAgent::Report(int64_t lease, const std::vector<v1::CandidateResult>& results) {
  v1::ReportRequest request;
  request.set_lease(lease);
  *request.mutable_results() = {results.begin(), results.end()};
  v1::ReportResponse response;
  absl::Status status = session_.Call<v1::ReportRequest, v1::ReportResponse>(
      &v1::Fleet::Stub::async::Report, [&] { return request; }, response, kCallLimit, stop_);
  if (status.ok()) {
    for (const v1::CandidateResult& result : results) {
      metrics_.CountReported(device_.id, result.result());
    }
    return;
  }
  metrics_.CountLost();
  LogEvent(Severity::kError, "report_refused",
           {{"lease", lease}, {"detail", std::string(status.message())}});
}

void DeviceAgent::Release(int64_t lease, const std::vector<int64_t>& unstarted,
                          ReleaseRequest::Fault fault, const std::string& detail) {
  ReleaseRequest request;
  request.set_lease(lease);
  *request.mutable_unstarted() = {unstarted.begin(), unstarted.end()};
  request.set_fault(fault);
  request.set_detail(Utf8(detail.substr(0, kDetailBytes)));
  if (fault != ReleaseRequest::FAULT_NONE) {
    LogEvent(
        Severity::kWarning, "released",
        {{"device", device_.id}, {"lease", lease}, {"fault", WordOf(fault)}, {"detail", detail}});
  }
  v1::ReleaseResponse response;
  absl::Status status = session_.Call<ReleaseRequest, v1::ReleaseResponse>(
      &v1::Fleet::Stub::async::Release, [&] { return request; }, response, kCallLimit, stop_);
  if (status.ok()) return;
  LogEvent(Severity::kError, "release_refused",
           {{"lease", lease}, {"detail", std::string(status.message())}});
}

void DeviceAgent::ReleaseAll(const v1::Lease& lease, ReleaseRequest::Fault fault,
                             const std::string& detail) {
  std::vector<int64_t> all;
  for (const v1::Candidate& candidate : lease.candidates()) all.push_back(candidate.id());
  Release(lease.id(), all, fault, detail);
}

}  // namespace heddle::measure
