// What the tests of the server share: an engine on a database of its own, with a clock that stands
// still unless told otherwise, searches that run in this process, and daemons that are the test.
#ifndef HEDDLE_TESTS_SERVER_ENGINE_SUPPORT_H_
#define HEDDLE_TESTS_SERVER_ENGINE_SUPPORT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "measure/codegen/codegen.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"
#include "search_space/ir/target.h"
#include "server/db/convert.h"
#include "server/engine/engine.h"
#include "server/engine/validate.h"
#include "tests/process.h"

namespace heddle::server {

// Calls and waits for the reply.
template <typename Response, typename Call>
absl::StatusOr<Response> Wait(const Call& call) {
  absl::StatusOr<Response> result = absl::UnknownError("no reply");
  absl::Notification replied;
  call([&](absl::StatusOr<Response> reply) {
    result = std::move(reply);
    replied.Notify();
  });
  EXPECT_TRUE(replied.WaitForNotificationWithTimeout(absl::Seconds(120))) << "no reply in time";
  return result;
}

inline v1::Device H100(const std::string& id = "cuda:0") {
  measure::DeviceInfo info;
  info.id = id;
  info.target = *search_space::FindTarget("h100");
  info.uuid = "GPU-" + id;
  info.driver = "580";
  info.compiler = "NVRTC 13.0";
  return measure::ToProto(info);
}

inline v1::JobSpec MatmulSpec(int trials, int m = 64) {
  v1::JobSpec spec;
  v1::Workload& workload = *spec.add_workloads();
  workload.set_builtin("matmul");
  for (const char* axis : {"n", "k"}) (*workload.mutable_shape())[axis] = 64;
  (*workload.mutable_shape())["m"] = m;
  spec.mutable_budget()->set_trials(trials);
  return spec;
}

inline v1::CandidateResult ResultOf(const v1::Candidate& candidate,
                                    v1::Outcome outcome = v1::OUTCOME_OK) {
  v1::CandidateResult reported;
  reported.set_candidate(candidate.id());
  v1::TrialResult& result = *reported.mutable_result();
  result.set_outcome(outcome);
  if (outcome == v1::OUTCOME_OK) {
    result.set_time_us(100 + static_cast<double>(candidate.id()));
    result.set_ci_low_us(result.time_us() * 0.99);
    result.set_ci_high_us(result.time_us() * 1.01);
  }
  return reported;
}

inline v1::ReportRequest ReportOf(const std::string& session, const v1::Lease& lease) {
  v1::ReportRequest report;
  report.set_session(session);
  report.set_lease(lease.id());
  for (const v1::Candidate& candidate : lease.candidates()) {
    *report.add_results() = ResultOf(candidate);
  }
  return report;
}

class EngineTest : public testing::Test {
 protected:
  EngineTest() { Open(); }
  ~EngineTest() override { Close(); }

  void Open() {
    StoreOptions options;
    options.readers = 2;
    options.before_commit = [this] { return before_commit_ ? before_commit_() : absl::OkStatus(); };
    auto store = Store::Open(path_, options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    EngineOptions engine;
    engine.steady = [this] { return SteadyTime() + absl::Milliseconds(now_ms_.load()); };
    engine.now = [this] {
      return absl::UnixEpoch() + absl::Milliseconds(now_ms_.load()) +
             absl::Hours(jump_hours_.load());
    };
    engine.search = [this](const searcher::Setup& setup, const SearchPort& port) {
      if (on_search_) on_search_(setup);
      return absl::StatusOr<searcher::Done>(Search(setup, port));
    };
    engine.open_jobs_per_tenant = 4;
    engine.match_every = absl::ZeroDuration();
    if (configure_) configure_(engine);
    metrics_ = std::make_unique<Metrics>();
    engine_ = std::make_unique<Engine>(*store_, *metrics_, engine);
    ASSERT_TRUE(engine_->Recover().ok());
  }
  void Close() {
    engine_.reset();
    store_.reset();
  }
  // As after a crash: nothing in memory survives.
  void Restart() {
    Close();
    Open();
  }
  // Lets time pass, with a heartbeat of nobody.
  void Advance(absl::Duration time) {
    now_ms_ += absl::ToInt64Milliseconds(time);
    engine_->Tick();
  }

  // ---------------------------------------------------------------------------------------- jobs
  absl::StatusOr<v1::Job> Create(const v1::JobSpec& spec, const std::string& request_id,
                                 const std::string& tenant = "weavers") {
    auto workloads = ParseSpec(spec, absl::UnixEpoch());
    if (!workloads.ok()) return workloads.status();
    return Wait<v1::Job>([&](Reply<v1::Job> reply) {
      engine_->CreateJob(tenant, "CreateJob", request_id, spec, *workloads, std::move(reply));
    });
  }
  std::string MustCreate(const v1::JobSpec& spec) {
    auto job = Create(spec, absl::StrCat("request-", ++requests_));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->name() : "";
  }
  v1::Job Get(const std::string& id) {
    auto reader = store_->Read();
    auto job = LoadJob(*reader, JobId(id), "");
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : v1::Job();
  }
  std::vector<v1::Trial> Trials(const std::string& job) {
    auto reader = store_->Read();
    auto trials = LoadTrials(*reader, JobId(job), std::nullopt, 1000);
    EXPECT_TRUE(trials.ok()) << trials.status();
    return trials.ok() ? *trials : std::vector<v1::Trial>();
  }
  // How many records there are of this database in all.
  int64_t CountRecords() {
    auto reader = store_->Read();
    auto count = reader->database().QueryInt("SELECT count(*) FROM trial");
    EXPECT_TRUE(count.ok()) << count.status();
    return count.value_or(-1);
  }
  bool AwaitState(const std::string& job, v1::Job::State state) {
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (absl::Now() < deadline) {
      if (Get(job).state() == state) return true;
      engine_->Tick();
      absl::SleepFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << job << " is " << WordOf(Get(job).state()) << ": " << Get(job).error();
    return false;
  }

  // --------------------------------------------------------------------------------------- fleet
  static v1::RegisterRequest RegistrationOf(const std::string& host,
                                            const v1::Device& device = H100()) {
    v1::RegisterRequest request;
    request.set_host_uuid(host);
    request.set_boot_id("boot-1");
    request.set_generator(measure::kGeneratorVersion);
    *request.add_devices() = device;
    return request;
  }
  absl::StatusOr<v1::RegisterResponse> TryRegister(const v1::RegisterRequest& request,
                                                   int64_t token = 0) {
    if (absl::Status s = Check(request); !s.ok()) return s;
    return Wait<v1::RegisterResponse>(
        [&](auto reply) { engine_->Register(As(token), request, std::move(reply)); });
  }
  std::string Register(const v1::RegisterRequest& request, int64_t token = 0) {
    auto response = TryRegister(request, token);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return "";
    tokens_[response->session()] = token;
    return response->session();
  }
  std::string Register(const std::string& host, int64_t token = 0) {
    return Register(RegistrationOf(host), token);
  }
  // A daemon with the token; 0: one that comes over the server's socket.
  static Caller As(int64_t token) {
    return {token == 0 ? "local" : "fleet", token == 0 ? Role::kAdmin : Role::kDaemon, token, "",
            "test"};
  }
  static Caller Tenant(const std::string& name) { return {name, Role::kTuner, 0, "", "test"}; }
  // Whoever registered the session.
  Caller Of(const std::string& session) {
    auto it = tokens_.find(session);
    return As(it == tokens_.end() ? 0 : it->second);
  }
  absl::StatusOr<v1::Lease> Acquire(const std::string& session, int max = 4) {
    v1::AcquireRequest request;
    request.set_session(session);
    request.set_device("cuda:0");
    request.set_request_id(absl::StrCat("acquire-", ++requests_));
    request.set_max(max);
    return Wait<v1::Lease>(
        [&](auto reply) { engine_->Acquire(Of(session), request, std::move(reply)); });
  }
  // A lease with candidates, which the searcher may still have to propose.
  v1::Lease MustAcquire(const std::string& session, int max = 4) {
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (absl::Now() < deadline) {
      auto lease = Acquire(session, max);
      EXPECT_TRUE(lease.ok()) << lease.status();
      if (!lease.ok() || lease->id() != 0) return lease.ok() ? *lease : v1::Lease();
      Idle();
    }
    ADD_FAILURE() << "no lease in time";
    return {};
  }
  absl::StatusOr<v1::ReportResponse> Report(const v1::ReportRequest& request) {
    return Wait<v1::ReportResponse>(
        [&](auto reply) { engine_->Report(Of(request.session()), request, std::move(reply)); });
  }
  absl::StatusOr<v1::HeartbeatResponse> Beat(const std::string& session,
                                             const std::vector<int64_t>& leases = {},
                                             const std::vector<int64_t>& running = {}) {
    v1::HeartbeatRequest request;
    request.set_session(session);
    request.mutable_leases()->Add(leases.begin(), leases.end());
    request.mutable_running()->Add(running.begin(), running.end());
    return Wait<v1::HeartbeatResponse>(
        [&](auto reply) { engine_->Heartbeat(Of(session), request, std::move(reply)); });
  }
  absl::Status Release(const v1::ReleaseRequest& request) {
    return Wait<v1::ReleaseResponse>([&](auto reply) {
             engine_->Release(Of(request.session()), request, std::move(reply));
           })
        .status();
  }
  // A moment passes for searchers, which work, and for the engine, whose clock ends their waits.
  void Idle() {
    absl::SleepFor(absl::Milliseconds(2));
    Advance(absl::Milliseconds(2));
  }
  // Measures whatever comes until the job has ended.
  void Work(const std::string& session, const std::string& job) {
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (!IsTerminal(Get(job).state()) && absl::Now() < deadline) {
      auto lease = Acquire(session, 8);
      ASSERT_TRUE(lease.ok()) << lease.status();
      if (lease->id() == 0) {
        Idle();
        continue;
      }
      auto reported = Report(ReportOf(session, *lease));
      ASSERT_TRUE(reported.ok()) << reported.status();
    }
    EXPECT_TRUE(IsTerminal(Get(job).state())) << "did not end: " << Get(job).ShortDebugString();
  }
  // Every trial of the job is done, and each has one record.
  void ExpectEachOnce(const std::string& job, int trials) {
    int screened = 0;
    std::set<std::string> points;
    for (const v1::Trial& trial : Trials(job)) {
      EXPECT_GE(trial.state(), v1::Trial::STATE_DONE) << trial.ShortDebugString();
      if (trial.final()) continue;
      ++screened;
      EXPECT_TRUE(points.insert(trial.point()).second) << "twice: " << trial.point();
    }
    EXPECT_EQ(screened, trials);
    EXPECT_EQ(Get(job).workloads(0).trials(), trials);
    EXPECT_EQ(CountRecords(), static_cast<int64_t>(Trials(job).size()));
  }

  tests::TempFolder folder_;
  const std::string path_ = folder_ / "heddle.db";
  std::atomic<int64_t> now_ms_{1'800'000'000'000};
  std::atomic<int> jump_hours_{0};  // of the system's clock
  std::function<absl::Status()> before_commit_;
  std::function<void(EngineOptions&)> configure_;
  std::map<std::string, int64_t> tokens_;  // by session
  std::function<void(const searcher::Setup&)> on_search_;
  std::atomic<int> requests_{0};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace heddle::server

#endif  // HEDDLE_TESTS_SERVER_ENGINE_SUPPORT_H_
