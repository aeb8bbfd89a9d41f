// FleetState with a database that a test commits to, or lets fail, when it likes; hosts with one
// device each, and jobs whose searcher is the test.
#ifndef HEDDLE_TESTS_SERVER_FLEET_FLEET_EVENTS_H_
#define HEDDLE_TESTS_SERVER_FLEET_FLEET_EVENTS_H_

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/values.h"
#include "server/db/job_store.h"
#include "server/engine/validate.h"
#include "server/fleet/fleet_state.h"
#include "tests/process.h"
#include "tests/server/engine_support.h"
#include "tuner/records/records.h"

namespace heddle::server {

// What a call was told, when it was.
template <typename T>
using Heard = std::shared_ptr<std::optional<absl::StatusOr<T>>>;

class FleetEventsTest : public testing::Test {
 protected:
  FleetEventsTest() {
    auto records = tuner::Records::Open(folder_ / "heddle.db");
    EXPECT_TRUE(records.ok()) << records.status();
    records_ = *std::move(records);
    FleetOptions options;
    options.steady = [this] { return SteadyTime() + absl::Milliseconds(now_ms_); };
    options.now = [this] { return absl::UnixEpoch() + absl::Milliseconds(now_ms_); };
    state_ = std::make_unique<FleetState>(metrics_, options);
    const absl::Status recovered = records_->Batch([&] { return state_->Recover(*records_); });
    EXPECT_TRUE(recovered.ok()) << recovered;
    Do([](FleetState& state) { state.Recovered(); });
    Commit();
  }

  // An event, and what it asks for; its writes wait for Commit or Fail.
  template <typename Event>
  void Do(const Event& event) {
    event(*state_);
    Effects effects = state_->TakeEffects();
    for (Effects::Write& write : effects.writes) pending_.push_back(std::move(write));
    for (const auto& reply : effects.replies) reply();
    for (const Effects::JobReply& asked : effects.job_replies) {
      asked.reply(LoadJob(*records_, asked.job, asked.tenant));
    }
    for (int64_t job : effects.searches) searches_.push_back(job);
  }
  // All that waits, in one commit, as the store does; and what follows from it. `expect_ok`: that
  // no write refuses.
  void Commit(bool expect_ok = true) {
    while (!pending_.empty()) {
      std::vector<absl::Status> stored;
      const auto batch = std::exchange(pending_, {});
      const absl::Status committed = records_->Batch([&] {
        for (const Effects::Write& write : batch) stored.push_back(write.body(*records_));
        return absl::OkStatus();
      });
      ASSERT_TRUE(committed.ok()) << committed;
      for (size_t i = 0; i < batch.size(); ++i) {
        EXPECT_TRUE(stored[i].ok() || !expect_ok) << stored[i];
        Do([&](FleetState&) {
          if (batch[i].done) batch[i].done(stored[i]);
        });
      }
    }
  }
  // The disk is full: what is to be stored in any case waits on.
  void Fail() {
    std::deque<Effects::Write> waiting;
    for (Effects::Write& write : std::exchange(pending_, {})) {
      if (write.persistence == Persistence::kUntilStored) {
        waiting.push_back(std::move(write));
      } else if (write.done) {
        Do([&](FleetState&) { write.done(absl::ResourceExhaustedError("disk full")); });
      }
    }
    while (!waiting.empty()) {
      pending_.push_front(std::move(waiting.back()));
      waiting.pop_back();
    }
  }
  void Advance(absl::Duration time) {
    now_ms_ += absl::ToInt64Milliseconds(time);
    Do([](FleetState& state) { state.Tick(); });
  }

  template <typename T>
  static Reply<T> To(const Heard<T>& heard) {
    return [heard](absl::StatusOr<T> result) {
      EXPECT_FALSE(heard->has_value()) << "told twice";
      *heard = std::move(result);
    };
  }
  template <typename T>
  static Heard<T> Nothing() {
    return std::make_shared<std::optional<absl::StatusOr<T>>>();
  }

  // A job with a searcher, which has begun.
  int64_t StartJob() {
    auto heard = Nothing<v1::Job>();
    const v1::JobSpec spec = MatmulSpec(5);
    Do([&](FleetState& state) {
      state.CreateJob("weavers", "CreateJob", absl::StrCat("request-", ++requests_), spec,
                      *ParseSpec(spec, absl::UnixEpoch()), To(heard));
    });
    Commit();
    EXPECT_TRUE(*heard && (*heard)->ok());
    EXPECT_FALSE(searches_.empty());
    const int64_t job = searches_.front();
    searches_.pop_front();
    Do([&](FleetState& state) { EXPECT_TRUE(state.PrepareSearch(job, "unused").has_value()); });
    Commit();
    return job;
  }
  static searcher::Proposal ProposalOf(int number) {
    searcher::Proposal proposal;
    proposal.set_number(number);
    proposal.set_point(absl::StrCat("p", number));
    proposal.set_steps(absl::StrCat("inline p", number));
    return proposal;
  }
  void Propose(int64_t job, int count) {
    searcher::FromSearcher question;
    question.set_default_point("p1");  // slower than p0
    for (int i = 0; i < count; ++i) *question.mutable_exchange()->add_proposals() = ProposalOf(i);
    Do([&](FleetState& state) { state.Ask(job, question); });
  }
  void AskFinals(int64_t job, int count) {
    searcher::FromSearcher question;
    question.set_default_point("p1");  // slower than p0
    question.mutable_finals()->set_budget_s(1);
    for (int i = 0; i < count; ++i) *question.mutable_finals()->add_finalists() = ProposalOf(i);
    Do([&](FleetState& state) { state.Ask(job, question); });
  }

  static Caller CallerOf(int host) {
    return {"fleet", Role::kDaemon, 100 + host, "", "test"};  // a token each
  }
  // `instance`: of a daemon beside the host's usual one.
  Heard<v1::RegisterResponse> TryRegister(const std::string& host, const Caller& caller,
                                          std::optional<int64_t> revoked,
                                          const std::string& instance = "") {
    v1::RegisterRequest request;
    request.set_host_uuid(host);
    request.set_boot_id("boot");
    request.set_instance(absl::StrCat("daemon-of-", host, instance));
    request.set_generator(measure::kGeneratorVersion);
    *request.add_devices() = H100();
    auto heard = Nothing<v1::RegisterResponse>();
    Do([&](FleetState& state) {
      state.Register(caller, request, absl::StrCat("session-", ++requests_), revoked, To(heard));
    });
    return heard;
  }
  std::string Register(int host) {
    auto heard = TryRegister(absl::StrCat("host-", host), CallerOf(host), std::nullopt);
    Commit();
    EXPECT_TRUE(*heard && (*heard)->ok());
    sessions_[host] = (**heard)->session();
    return sessions_[host];
  }
  Heard<v1::Lease> Acquire(int host, int max = 8) {
    v1::AcquireRequest request;
    request.set_session(sessions_.at(host));
    request.set_device("cuda:0");
    request.set_request_id(absl::StrCat("acquire-", ++requests_));
    request.set_max(max);
    *request.mutable_wait_duration() = DurationOf(600);
    auto heard = Nothing<v1::Lease>();
    Do([&](FleetState& state) { state.Acquire(CallerOf(host), request, To(heard)); });
    return heard;
  }
  // That a call was given, with so many candidates; an empty one where it was not.
  static v1::Lease LeaseIn(const Heard<v1::Lease>& heard, int candidates) {
    EXPECT_TRUE(heard->has_value()) << "no reply";
    if (!heard->has_value()) return {};
    EXPECT_TRUE((*heard)->ok()) << (*heard)->status();
    if (!(*heard)->ok()) return {};
    EXPECT_EQ((**heard)->candidates_size(), candidates);
    return ***heard;
  }
  Heard<v1::ReportResponse> Report(int host, const v1::ReportRequest& request) {
    auto heard = Nothing<v1::ReportResponse>();
    Do([&](FleetState& state) { state.Report(CallerOf(host), request, To(heard)); });
    return heard;
  }
  Heard<v1::ReportResponse> Report(int host, const v1::Lease& lease) {
    return Report(host, ReportOf(sessions_.at(host), lease));
  }
  // With the times that the first host had, as an honest second one.
  Heard<v1::ReportResponse> ReportAs(int host, const v1::Lease& lease, const v1::Lease& first) {
    v1::ReportRequest request = ReportOf(sessions_.at(host), lease);
    for (int i = 0; i < request.results_size(); ++i) {
      *request.mutable_results(i)->mutable_result() = ResultOf(first.candidates(i)).result();
    }
    return Report(host, request);
  }
  Heard<v1::FleetHost> SetHost(const std::string& host, v1::SetHostRequest::Action action) {
    v1::SetHostRequest request;
    request.set_host_uuid(host);
    request.set_action(action);
    auto heard = Nothing<v1::FleetHost>();
    Do([&](FleetState& state) { state.SetHost(admin_, request, To(heard)); });
    return heard;
  }
  // The first host has measured the finals of a job that it returns, p0 and the default p1, and
  // another one is to confirm p0: the lease that was reported.
  std::pair<int64_t, v1::Lease> MeasureFinals() {
    Register(1);
    const int64_t job = StartJob();
    AskFinals(job, 2);
    auto finals = Acquire(1);
    Commit();
    const v1::Lease lease = LeaseIn(finals, 2);
    Report(1, lease);
    Commit();
    return {job, lease};
  }
  // The job's next finals, with a third schedule: leased to the first host.
  v1::Lease LeaseNextFinals(int64_t job) {
    Do([&](FleetState& state) { state.TakeAnswer(job, true); });
    AskFinals(job, 3);
    auto finals = Acquire(1);
    Commit();
    return LeaseIn(finals, 3);
  }
  // That the third schedule is the best of them.
  void ReportThirdAsBest(const v1::Lease& finals) {
    v1::ReportRequest report = ReportOf(sessions_.at(1), finals);
    report.mutable_results(2)->mutable_result()->set_time_us(50);
    Report(1, report);
    Commit();
  }
  // Whether what is believed of the one host is what the database has.
  void ExpectHostAsStored() {
    const v1::FleetHost host = state_->Hosts().front();
    EXPECT_EQ(host.token(), Count("SELECT token FROM fleet_host"));
    EXPECT_EQ(host.trusted(), Count("SELECT trusted FROM fleet_host") == 1);
    EXPECT_EQ(host.released(), Count("SELECT released FROM fleet_host") == 1);
  }
  void Beat(int host, const std::vector<int64_t>& leases = {}) {
    v1::HeartbeatRequest request;
    request.set_session(sessions_.at(host));
    request.mutable_leases()->Add(leases.begin(), leases.end());
    Do([&](FleetState& state) {
      state.Heartbeat(CallerOf(host), request, [](const auto& reply) { EXPECT_TRUE(reply.ok()); });
    });
  }
  int64_t Count(const std::string& sql) {
    auto count = records_->database().QueryInt(sql);
    EXPECT_TRUE(count.ok()) << count.status();
    return count.value_or(-1);
  }

  const Caller admin_{"local", Role::kAdmin, 0, "", "test"};
  tests::TempFolder folder_;
  int64_t now_ms_ = 1'800'000'000'000;
  std::unique_ptr<tuner::Records> records_;
  Metrics metrics_;
  std::unique_ptr<FleetState> state_;
  std::deque<Effects::Write> pending_;
  std::deque<int64_t> searches_;
  std::map<int, std::string> sessions_;
  int requests_ = 0;
};

}  // namespace heddle::server

#endif  // HEDDLE_TESTS_SERVER_FLEET_FLEET_EVENTS_H_
