// The state machine where events come between a write and its commit, several writes end with one
// commit, or a write fails: what each caller is then told, and what is believed.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/job_store.h"
#include "server/engine/validate.h"
#include "server/fleet/fleet_state.h"
#include "tests/process.h"
#include "tests/server/engine_support.h"
#include "tuner/records/records.h"

namespace heddle::server {
namespace {

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
  Heard<v1::RegisterResponse> TryRegister(const std::string& host, const Caller& caller,
                                          std::optional<int64_t> revoked) {
    v1::RegisterRequest request;
    request.set_host_uuid(host);
    request.set_boot_id("boot");
    request.set_instance(absl::StrCat("daemon-of-", host));
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
  void Beat(int host) {
    v1::HeartbeatRequest request;
    request.set_session(sessions_.at(host));
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

// ----------------------------------------------------------------------------------------- finals

TEST_F(FleetEventsTest, FinalsThatComeLateNeedNoOtherDevice) {
  Register(1);
  Register(2);
  const int64_t job = StartJob();
  AskFinals(job, 2);
  auto first = Acquire(1);
  Commit();
  const v1::Lease lease = LeaseIn(first, 2);
  now_ms_ += 31'000;
  Beat(2);
  Do([](FleetState& state) { state.Tick(); });  // they wait for another device
  Commit();
  Report(1, lease);
  Commit();
  auto confirmation = Acquire(2);
  auto again = Acquire(1);  // before the searcher has heard of it
  Commit();
  LeaseIn(confirmation, 2);
  EXPECT_FALSE(again->has_value()) << "there is nothing to do";
  EXPECT_TRUE(state_->AnswerIsReady(job, true));
  EXPECT_EQ(state_->TakeAnswer(job, true).results_size(), 2);
}

TEST_F(FleetEventsTest, OfFinalsOnlyWhatIsMissingIsMeasuredAgain) {
  Register(1);
  const int64_t job = StartJob();
  AskFinals(job, 3);
  auto first = Acquire(1);
  Commit();
  const v1::Lease lease = LeaseIn(first, 3);
  v1::ReportRequest report = ReportOf(sessions_[1], lease);
  *report.mutable_results(1) = ResultOf(lease.candidates(1), v1::OUTCOME_WORKER_LOST);
  report.mutable_results()->RemoveLast();
  Report(1, report);
  Commit();
  auto again = Acquire(1);
  Commit();
  const v1::Lease rest = LeaseIn(again, 1);
  EXPECT_EQ(rest.candidates(0).id(), lease.candidates(1).id());
  EXPECT_FALSE(state_->AnswerIsReady(job, true));
  Report(1, rest);
  v1::Lease last = lease;
  last.mutable_candidates()->DeleteSubrange(0, 2);
  Report(1, last);
  Commit();
  EXPECT_TRUE(state_->AnswerIsReady(job, true));
  const searcher::ToSearcher answer = state_->TakeAnswer(job, true);
  ASSERT_EQ(answer.results_size(), 3);
  for (const auto& result : answer.results()) EXPECT_EQ(result.result().outcome(), v1::OUTCOME_OK);
}

TEST_F(FleetEventsTest, AScreeningResultIsNoAnswerToFinals) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 1);
  auto screening = Acquire(1);
  Commit();
  AskFinals(job, 2);
  Report(1, LeaseIn(screening, 1));
  Commit();
  EXPECT_FALSE(state_->AnswerIsReady(job, true));
  EXPECT_TRUE(state_->AnswerIsReady(job, false));
  auto finals = Acquire(1);
  Commit();
  Report(1, LeaseIn(finals, 2));
  Commit();
  EXPECT_TRUE(state_->AnswerIsReady(job, true));
}

// ------------------------------------------------------------------------------ several at a time

TEST_F(FleetEventsTest, AResultThatComesWithTheEndOfItsLeaseIsCountedOnce) {
  Register(1);
  Register(2);
  const int64_t job = StartJob();
  Propose(job, 1);
  auto first = Acquire(1);
  Commit();
  const v1::Lease lease = LeaseIn(first, 1);
  now_ms_ += 31'000;
  Beat(2);
  auto second = Acquire(2);
  Do([](FleetState& state) { state.Tick(); });  // the lease ends: to be written
  auto reported = Report(1, lease);             // and so is its result
  Commit();
  ASSERT_TRUE(reported->has_value() && (*reported)->ok());
  EXPECT_EQ((**reported)->committed_size(), 1);
  const v1::Lease again = LeaseIn(second, 1);  // given away between the two
  EXPECT_EQ(Count("SELECT state FROM job_trial"), int{v1::Trial::STATE_DONE});
  Report(2, again);
  Commit();
  EXPECT_EQ(Count("SELECT trials FROM job_workload"), 1);
  EXPECT_EQ(Count("SELECT count(*) FROM job_event WHERE trial > 0"), 1);
}

TEST_F(FleetEventsTest, EachAcquireIsAnsweredOnce) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 2);
  auto first = Acquire(1, 1);
  auto second = Acquire(1, 1);  // its daemon has given the first one up
  EXPECT_FALSE(first->has_value()) << "before its lease is written";
  Commit();
  EXPECT_NE(LeaseIn(first, 1).id(), LeaseIn(second, 1).id());
}

TEST_F(FleetEventsTest, AnAcquireIsToldThatItsLeaseWasNotWritten) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 2);
  auto first = Acquire(1, 1);
  auto second = Acquire(1, 1);
  Fail();
  for (const auto& heard : {first, second}) {
    ASSERT_TRUE(heard->has_value());
    EXPECT_TRUE(absl::IsResourceExhausted((*heard)->status()));
  }
  auto third = Acquire(1);
  Commit();
  LeaseIn(third, 2);
}

// ---------------------------------------------------------------------------------- confirmations

TEST_F(FleetEventsTest, AConfirmationWhoseLeaseIsNotWrittenIsAskedForAgain) {
  MeasureFinals();
  Register(2);
  for (int attempt = 0; attempt < 5; ++attempt) {
    auto unwritten = Acquire(2);
    Fail();
    ASSERT_TRUE(unwritten->has_value());
    EXPECT_FALSE((*unwritten)->ok());
  }
  auto written = Acquire(2);
  Commit();
  EXPECT_EQ(LeaseIn(written, 2).kind(), v1::Lease::KIND_FINALS);
}

TEST_F(FleetEventsTest, FinalsAreNotMeasuredTwiceBecauseAConfirmationWasNotWritten) {
  const int64_t job = MeasureFinals().first;
  const v1::Lease others = LeaseNextFinals(job);
  const int64_t measured = others.candidates(0).id();
  Register(2);
  auto unwritten = Acquire(2);
  Fail();
  EXPECT_FALSE((*unwritten)->ok());
  auto confirmation = Acquire(2);
  Commit();
  EXPECT_NE(LeaseIn(confirmation, 2).candidates(0).id(), measured);
  Register(3);
  auto nothing = Acquire(3);
  Commit();
  EXPECT_FALSE(nothing->has_value()) << "the finals are being measured";
}

TEST_F(FleetEventsTest, AConfirmationThatComesBackGivesWayToANewerOne) {
  const int64_t job = MeasureFinals().first;
  Register(2);
  auto older = Acquire(2);
  Commit();
  EXPECT_EQ(LeaseIn(older, 2).candidates(0).steps(), "inline p0");
  ReportThirdAsBest(LeaseNextFinals(job));
  Advance(absl::Seconds(31));  // the second host has gone
  Commit();
  Register(3);
  auto newer = Acquire(3);
  Commit();
  EXPECT_EQ(LeaseIn(newer, 2).candidates(0).steps(), "inline p2");
}

TEST_F(FleetEventsTest, OfConfirmationsThatComeBackTheNewestWaits) {
  const int64_t job = MeasureFinals().first;
  Register(2);
  auto older = Acquire(2);
  Commit();
  LeaseIn(older, 2);
  ReportThirdAsBest(LeaseNextFinals(job));
  Register(3);
  auto newer = Acquire(3);
  Commit();
  EXPECT_EQ(LeaseIn(newer, 2).candidates(0).steps(), "inline p2");
  Advance(absl::Seconds(31));  // both have gone, and the older lease comes back first
  Commit();
  Register(4);
  auto again = Acquire(4);
  Commit();
  EXPECT_EQ(LeaseIn(again, 2).candidates(0).steps(), "inline p2");
}

TEST_F(FleetEventsTest, AConfirmationThatIsReportedTwiceIsJudgedOnce) {
  const v1::Lease first = MeasureFinals().second;
  Register(2);
  auto asked = Acquire(2);
  Commit();
  const v1::Lease confirmation = LeaseIn(asked, 2);
  ReportAs(2, confirmation, first);
  ReportAs(2, confirmation, first);  // before the first one is committed
  Commit();
  Register(3);
  auto third = Acquire(3);
  Commit();
  EXPECT_FALSE(third->has_value()) << "they agree: no third word is needed";
}

// --------------------------------------------------------------------------- what is not written

TEST_F(FleetEventsTest, ACancelThatIsNotWrittenIsNotAcknowledged) {
  Register(1);
  const int64_t job = StartJob();
  const Caller owner{"weavers", Role::kTuner, 1, "", "test"};
  auto cancelled = Nothing<v1::Job>();
  Do([&](FleetState& state) { state.CancelJob(owner, job, To(cancelled)); });
  Fail();
  ASSERT_TRUE(cancelled->has_value());
  EXPECT_TRUE(absl::IsResourceExhausted((*cancelled)->status())) << (*cancelled)->status();
  auto again = Nothing<v1::Job>();
  Do([&](FleetState& state) { state.CancelJob(owner, job, To(again)); });
  Commit();
  ASSERT_TRUE(again->has_value() && (*again)->ok());
  EXPECT_EQ((**again)->state(), v1::Job::STATE_CANCELLING);
}

TEST_F(FleetEventsTest, ACancelledJobEndsWhoseLastLeaseWasNotWritten) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 1);
  auto unwritten = Acquire(1);
  const Caller owner{"weavers", Role::kTuner, 1, "", "test"};
  auto cancelled = Nothing<v1::Job>();
  Do([&](FleetState& state) { state.CancelJob(owner, job, To(cancelled)); });
  Do([&](FleetState& state) { state.SearchEnded(job); });
  Fail();
  Commit();
  EXPECT_EQ(Count("SELECT state FROM job"), int{v1::Job::STATE_CANCELLED});
}

TEST_F(FleetEventsTest, AReportIsStoredWhereTheBestCannotBeRead) {
  Register(1);
  const int64_t job = StartJob();
  AskFinals(job, 2);
  auto finals = Acquire(1);
  Commit();
  // As where the table's pages are damaged: SQLite refuses to read what only reading a best reads.
  sqlite3_set_authorizer(
      records_->database().handle(),
      [](void*, int action, const char* table, const char* column, const char*, const char*) {
        const bool best = action == SQLITE_READ && std::strcmp(table, "served") == 0 &&
                          std::strcmp(column, "ci_low_us") == 0;
        return best ? SQLITE_DENY : SQLITE_OK;
      },
      nullptr);
  auto reported = Report(1, LeaseIn(finals, 2));
  Commit();
  sqlite3_set_authorizer(records_->database().handle(), nullptr, nullptr);
  ASSERT_TRUE(reported->has_value());
  ASSERT_TRUE((*reported)->ok()) << (*reported)->status();
  EXPECT_EQ((**reported)->committed_size(), 2);
  EXPECT_EQ(Count("SELECT count(*) FROM trial"), 2);
}

TEST_F(FleetEventsTest, TrustThatIsNotWrittenIsNotBelieved) {
  Register(1);
  auto trusted = SetHost("host-1", v1::SetHostRequest::ACTION_TRUST);
  auto distrusted = SetHost("host-1", v1::SetHostRequest::ACTION_DISTRUST);
  Fail();
  for (const auto& heard : {trusted, distrusted}) {
    ASSERT_TRUE(heard->has_value());
    EXPECT_FALSE((*heard)->ok());
  }
  EXPECT_FALSE(state_->Trusts("host-1"));
  trusted = SetHost("host-1", v1::SetHostRequest::ACTION_TRUST);
  Commit();
  ASSERT_TRUE(trusted->has_value() && (*trusted)->ok());
  EXPECT_TRUE(state_->Trusts("host-1"));
  distrusted = SetHost("host-1", v1::SetHostRequest::ACTION_DISTRUST);
  Fail();
  EXPECT_TRUE(state_->Trusts("host-1"));
}

TEST_F(FleetEventsTest, AHostThatRegistersMeanwhileIsWhatTheDatabaseSays) {
  Register(1);
  // Both are asked before either is written.
  auto trusted = SetHost("host-1", v1::SetHostRequest::ACTION_TRUST);
  auto registered = TryRegister("host-1", CallerOf(1), std::nullopt);
  Commit();
  EXPECT_TRUE((*trusted)->ok() && (*registered)->ok());
  EXPECT_TRUE(state_->Trusts("host-1"));
  ExpectHostAsStored();
  auto released = SetHost("host-1", v1::SetHostRequest::ACTION_RELEASE);
  registered = TryRegister("host-1", CallerOf(1), std::nullopt);
  Commit();
  EXPECT_TRUE((*released)->ok() && (*registered)->ok());
  EXPECT_FALSE(state_->Hosts().front().released());
  ExpectHostAsStored();
}

TEST_F(FleetEventsTest, WhatIsSaidOfAHostTwiceIsWhatTheDatabaseSays) {
  Register(1);
  for (const auto first : {v1::SetHostRequest::ACTION_RELEASE, v1::SetHostRequest::ACTION_TRUST}) {
    const auto second = first == v1::SetHostRequest::ACTION_TRUST
                            ? v1::SetHostRequest::ACTION_RELEASE
                            : v1::SetHostRequest::ACTION_TRUST;
    auto one = SetHost("host-1", first);
    auto other = SetHost("host-1", second);
    Commit();
    EXPECT_TRUE((*one)->ok() && (*other)->ok());
    EXPECT_TRUE(state_->Hosts().front().released());
    ExpectHostAsStored();
    auto registered = TryRegister("host-1", CallerOf(1), std::nullopt);
    Commit();
    EXPECT_TRUE((*registered)->ok());
    EXPECT_FALSE(state_->Trusts("host-1")) << "it was released";
    ExpectHostAsStored();
  }
}

TEST_F(FleetEventsTest, ARegistrationThatIsNotWrittenIsNotBelieved) {
  auto first = TryRegister("host-1", CallerOf(1), std::nullopt);
  Fail();
  EXPECT_FALSE((*first)->ok());
  EXPECT_TRUE(state_->Hosts().empty());
  Register(1);
  auto released = SetHost("host-1", v1::SetHostRequest::ACTION_RELEASE);
  Commit();
  EXPECT_TRUE((*released)->ok());
  auto second = TryRegister("host-1", CallerOf(2), std::nullopt);
  Fail();
  EXPECT_FALSE((*second)->ok());
  EXPECT_TRUE(state_->Hosts().front().released());
  ExpectHostAsStored();
}

TEST_F(FleetEventsTest, WhatIsSaidOfAHostIsRefusedWhereAnotherTokenHasItByThen) {
  Register(1);
  auto released = SetHost("host-1", v1::SetHostRequest::ACTION_RELEASE);
  Commit();
  // The new owner's claim is written before what was said of the old one.
  auto trusted = SetHost("host-1", v1::SetHostRequest::ACTION_TRUST);
  auto claimed = TryRegister("host-1", CallerOf(2), std::nullopt);
  std::swap(pending_[0], pending_[1]);
  Commit(/*expect_ok=*/false);
  EXPECT_TRUE((*claimed)->ok());
  EXPECT_TRUE(absl::IsAborted((*trusted)->status())) << (*trusted)->status();
  EXPECT_FALSE(state_->Trusts("host-1"));
  ExpectHostAsStored();
}

TEST_F(FleetEventsTest, AReleaseThatIsNotWrittenEndsNoSession) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 2);
  auto released = SetHost("host-1", v1::SetHostRequest::ACTION_RELEASE);
  Fail();
  EXPECT_FALSE((*released)->ok());
  EXPECT_FALSE(state_->Hosts().front().released());
  auto lease = Acquire(1);
  Commit();
  LeaseIn(lease, 2);
  released = SetHost("host-1", v1::SetHostRequest::ACTION_RELEASE);
  Commit();
  EXPECT_TRUE(state_->Hosts().front().released());
  EXPECT_FALSE((**Acquire(1)).ok()) << "its session has ended";
}

TEST_F(FleetEventsTest, ADevicesStateThatIsNotWrittenIsNotBelieved) {
  Register(1);
  const std::string id = state_->Devices("").front().id();
  const auto set = [&](v1::FleetDevice::State state) {
    v1::SetDeviceStateRequest request;
    request.set_id(id);
    request.set_state(state);
    auto heard = Nothing<v1::FleetDevice>();
    Do([&](FleetState& s) { s.SetDeviceState(admin_, request, To(heard)); });
    return heard;
  };
  auto drained = set(v1::FleetDevice::STATE_DRAINING);
  Fail();
  EXPECT_FALSE((*drained)->ok());
  EXPECT_EQ(state_->Devices("").front().state(), v1::FleetDevice::STATE_ENABLED);
  // It registers before its state is written, and is written as it was.
  drained = set(v1::FleetDevice::STATE_DRAINING);
  auto registered = TryRegister("host-1", CallerOf(1), std::nullopt);
  Commit();
  ASSERT_TRUE((*drained)->ok() && (*registered)->ok());
  EXPECT_EQ((**drained)->state(), v1::FleetDevice::STATE_DRAINING);
  EXPECT_EQ(state_->Devices("").front().state(), v1::FleetDevice::STATE_DRAINING);
  EXPECT_EQ(Count("SELECT state FROM fleet_device"), v1::FleetDevice::STATE_DRAINING);
}

TEST_F(FleetEventsTest, APinThatIsNotWrittenIsNotBelieved) {
  Register(1);
  const v1::DeviceModel before = state_->Models().front();
  const auto pin = [&](bool unpin) {
    v1::PinModelRequest request;
    request.set_name(before.name());
    request.set_peak_gflops(12345);
    request.set_unpin(unpin);
    auto heard = Nothing<v1::DeviceModel>();
    Do([&](FleetState& state) { state.PinModel(admin_, request, To(heard)); });
    return heard;
  };
  auto pinned = pin(false);
  Fail();
  EXPECT_FALSE((*pinned)->ok());
  EXPECT_EQ(state_->Models().front().source(), before.source());
  EXPECT_EQ(state_->Models().front().target().peak_gflops(), before.target().peak_gflops());
  pinned = pin(false);
  Commit();
  EXPECT_EQ((**pinned)->target().peak_gflops(), 12345);
  EXPECT_EQ(state_->Models().front().source(), v1::DeviceModel::SOURCE_PINNED);
  auto unpinned = pin(true);
  Fail();
  EXPECT_FALSE((*unpinned)->ok());
  EXPECT_EQ(state_->Models().front().source(), v1::DeviceModel::SOURCE_PINNED);
  EXPECT_EQ(Count("SELECT count(*) FROM fleet_model"), 1);
  // Each keeps the rates that it does not give, so that one waits for the other.
  pinned = pin(false);
  auto other = pin(false);
  ASSERT_TRUE(other->has_value());
  EXPECT_TRUE(absl::IsAborted((*other)->status())) << (*other)->status();
  Commit();
  EXPECT_TRUE((*pinned)->ok());
  unpinned = pin(true);
  Commit();
  EXPECT_TRUE((*unpinned)->ok());
}

TEST_F(FleetEventsTest, ARevokedTokensHostIsTakenOverOnce) {
  Register(1);
  const int64_t revoked = CallerOf(1).token;
  Advance(absl::Seconds(31));  // its daemon has gone
  // Both have looked at the database before either came.
  auto second = TryRegister("host-1", CallerOf(2), revoked);
  auto third = TryRegister("host-1", CallerOf(3), revoked);
  Commit();
  EXPECT_TRUE((*second)->ok()) << (*second)->status();
  EXPECT_TRUE(absl::IsPermissionDenied((*third)->status())) << (*third)->status();
}

TEST_F(FleetEventsTest, TheTimeOfDevicesIsBookedWhenTheDiskHasRoomAgain) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 1);
  auto first = Acquire(1);
  Commit();
  now_ms_ += 8'000;
  Report(1, LeaseIn(first, 1));
  Commit();
  Advance(absl::Seconds(8));
  Fail();
  Commit();
  EXPECT_EQ(Count("SELECT CAST(sum(device_s) AS INTEGER) FROM tenant_use"), 8);
}

TEST_F(FleetEventsTest, WhatRunsIsWrittenWithTheNextHeartbeat) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 1);
  auto first = Acquire(1);
  Commit();
  const v1::Lease lease = LeaseIn(first, 1);
  v1::HeartbeatRequest request;
  request.set_session(sessions_[1]);
  request.add_leases(lease.id());
  request.add_running(lease.candidates(0).id());
  const auto beat = [&](FleetState& state) {
    state.Heartbeat(CallerOf(1), request, [](const auto& reply) { EXPECT_TRUE(reply.ok()); });
  };
  Do(beat);
  Fail();
  EXPECT_EQ(Count("SELECT sum(running) FROM job_trial"), 0);
  Do(beat);
  Commit();
  EXPECT_EQ(Count("SELECT sum(running) FROM job_trial"), 1);
}

// Also when it loads the fleet again.
TEST_F(FleetEventsTest, AReplicaKnowsOfWhichVersionsItsDevicesAre) {
  Register(1);
  Commit();
  const v1::Device device = state_->Devices("").front().device();
  tuner::Environment same;
  same.device_name = device.target().name();
  same.driver = device.driver();
  same.compiler = device.compiler();
  tuner::Environment older = same;
  older.driver = "an older one";
  FleetState replica(metrics_, {});
  for (int load = 0; load < 2; ++load) {
    ASSERT_TRUE(replica.LoadFleet(*records_).ok());
    EXPECT_EQ(replica.ChangedSince(same), std::vector<std::string>());
    EXPECT_EQ(replica.ChangedSince(older), std::vector<std::string>({"driver"}));
  }
}

}  // namespace
}  // namespace heddle::server
