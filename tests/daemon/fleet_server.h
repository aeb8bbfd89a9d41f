// A server of the Fleet service that does as the test says: leases come from a list, results are
// kept, calls fail on request.
#ifndef HEDDLE_TESTS_DAEMON_FLEET_SERVER_H_
#define HEDDLE_TESTS_DAEMON_FLEET_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "heddle/v1/errors.pb.h"
#include "heddle/v1/fleet.grpc.pb.h"
#include "proto/values.h"

namespace heddle::tests {

class FleetServer final : public v1::Fleet::Service {
 public:
  // `address`: "unix:PATH"; may be listened on again after Stop.
  explicit FleetServer(std::string address) : address_(std::move(address)) { Start(); }
  ~FleetServer() override { Stop(); }

  void Start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
    builder.RegisterService(this);
    {
      std::lock_guard lock(mutex_);
      up_ = true;
    }
    server_ = builder.BuildAndStart();
  }
  void Stop() {
    if (server_ == nullptr) return;
    {
      std::lock_guard lock(mutex_);
      up_ = false;
    }
    changed_.notify_all();
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  // As a restart of the server does.
  void ForgetSession() {
    std::lock_guard lock(mutex_);
    session_.clear();
  }

  // ------------------------------------------------------------------------- what the test says
  void Offer(v1::Lease lease) {
    {
      std::lock_guard lock(mutex_);
      offered_.push_back(std::move(lease));
    }
    changed_.notify_all();
  }
  void Revoke(int64_t lease) {
    std::lock_guard lock(mutex_);
    revoked_.insert(lease);
  }
  // The next `count` reports and releases are refused with each of `codes` in turn.
  void Refuse(int count, std::vector<grpc::StatusCode> codes) {
    std::lock_guard lock(mutex_);
    refuse_ = count;
    refusals_ = std::move(codes);
  }
  // The next `count` reports are committed, and their replies lost.
  void LoseReportReplies(int count) {
    std::lock_guard lock(mutex_);
    lose_reports_ = count;
  }

  // -------------------------------------------------------------------------- what the daemon did
  // Limits of patience only: a busy machine starts workers and compilers slowly.
  static constexpr absl::Duration kPatience = absl::Minutes(5);
  // Waits until `done` is true of what is known; false: it did not come true in time.
  bool Await(const std::function<bool(const FleetServer&)>& done,
             absl::Duration limit = kPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoMilliseconds(limit), [&] { return done(*this); });
  }
  bool AwaitResults(size_t count, absl::Duration limit = kPatience) {
    return Await([&](const FleetServer& s) { return s.results.size() >= count; }, limit);
  }
  bool AwaitState(v1::WorkerStatus::State state, absl::Duration limit = kPatience) {
    return Await(
        [&](const FleetServer& s) {
          return s.beat.device_states_size() > 0 && s.beat.device_states(0).state() == state;
        },
        limit);
  }

  // Read inside Await, or when the daemon is gone.
  std::map<int64_t, v1::TrialResult> results;  // by candidate: the first report counts
  int reports = 0, refused = 0, registrations = 0, acquired = 0;
  std::vector<v1::ReleaseRequest> released;
  v1::RegisterRequest registered;
  v1::HeartbeatRequest beat;  // the last

 private:
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    std::lock_guard lock(mutex_);
    registered = *request;
    session_ = absl::StrCat("session-", ++registrations);
    response->set_session(session_);
    response->set_epoch(registrations);
    *response->mutable_heartbeat_interval() = DurationOf(0.1);
    *response->mutable_lease_duration() = DurationOf(2);
    changed_.notify_all();
    return grpc::Status::OK;
  }

  grpc::Status Acquire(grpc::ServerContext* context, const v1::AcquireRequest* request,
                       v1::Lease* lease) override {
    std::unique_lock lock(mutex_);
    if (request->session() != session_) return UnknownSession();
    auto given = given_.find(request->request_id());
    if (given != given_.end()) {
      *lease = given->second;
      return grpc::Status::OK;
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(SecondsOf(request->wait_duration()));
    while (offered_.empty() && up_ && absl::Now() < deadline && !context->IsCancelled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    if (!up_) return {grpc::StatusCode::UNAVAILABLE, "shutting down"};
    if (offered_.empty() || context->IsCancelled()) return grpc::Status::OK;
    *lease = offered_.front();
    offered_.pop_front();
    given_[request->request_id()] = *lease;
    ++acquired;
    changed_.notify_all();
    return grpc::Status::OK;
  }

  grpc::Status Report(grpc::ServerContext*, const v1::ReportRequest* request,
                      v1::ReportResponse* response) override {
    std::lock_guard lock(mutex_);
    if (request->session() != session_) return UnknownSession();
    ++reports;
    if (refuse_ > 0) return Refused();
    for (const v1::CandidateResult& result : request->results()) {
      results.emplace(result.candidate(), result.result());
      response->add_committed(result.candidate());
    }
    changed_.notify_all();
    if (lose_reports_ > 0) {
      --lose_reports_;
      return {grpc::StatusCode::UNAVAILABLE, "the reply is lost"};
    }
    return grpc::Status::OK;
  }

  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    std::lock_guard lock(mutex_);
    if (request->session() != session_) return UnknownSession();
    beat = *request;
    for (int64_t lease : request->leases()) {
      if (revoked_.count(lease) > 0) response->add_revoke(lease);
    }
    changed_.notify_all();
    return grpc::Status::OK;
  }

  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override {
    std::lock_guard lock(mutex_);
    if (request->session() != session_) return UnknownSession();
    if (refuse_ > 0) return Refused();
    released.push_back(*request);
    changed_.notify_all();
    return grpc::Status::OK;
  }

  // With mutex_ held.
  grpc::Status Refused() {
    --refuse_;
    ++refused;
    changed_.notify_all();
    return {refusals_[static_cast<size_t>(refused) % refusals_.size()], "not now"};
  }

  static grpc::Status UnknownSession() {
    v1::ErrorInfo info;
    info.set_reason("SESSION_UNKNOWN");
    info.set_domain("heddle");
    v1::RpcStatus details;
    details.set_code(grpc::StatusCode::FAILED_PRECONDITION);
    auto* any = details.add_details();
    any->set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
    any->set_value(info.SerializeAsString());
    return {grpc::StatusCode::FAILED_PRECONDITION, "no such session", details.SerializeAsString()};
  }

  const std::string address_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool up_ = false;
  std::string session_;
  std::deque<v1::Lease> offered_;
  std::map<std::string, v1::Lease> given_;  // by request id
  std::set<int64_t> revoked_;
  int lose_reports_ = 0, refuse_ = 0;
  std::vector<grpc::StatusCode> refusals_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_DAEMON_FLEET_SERVER_H_
