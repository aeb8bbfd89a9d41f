// The state machine where events come between a write and its commit, several writes end with one
// commit, or a write fails: what each caller is then told, and what is believed.
#include "tests/server/fleet/fleet_events.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/job_store.h"

namespace heddle::server {
namespace {

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

// A daemon that is heard of all the time holds its candidates for so long, and no longer.
TEST_F(FleetEventsTest, ALeaseThatIsNeverReportedIsTakenBack) {
  Register(1);
  Register(2);
  const int64_t job = StartJob();
  Propose(job, 1);
  auto first = Acquire(1);
  Commit();
  const v1::Lease lease = LeaseIn(first, 1);
  for (int minute = 0; minute < 30; ++minute) {
    for (int beat = 0; beat < 3; ++beat) {
      now_ms_ += 20'000;
      Beat(1, {lease.id()});
      Beat(2);
    }
    Do([](FleetState& state) { state.Tick(); });
    Commit();
    if (minute < 15) {
      EXPECT_EQ(Count("SELECT state FROM job_trial"), int{v1::Trial::STATE_LEASED});
    }
  }
  auto second = Acquire(2);
  Commit();
  EXPECT_EQ(LeaseIn(second, 1).candidates(0).id(), lease.candidates(0).id());
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
  const std::string id = state_->Devices("").front().name();
  const auto set = [&](v1::FleetDevice::State state) {
    v1::SetDeviceStateRequest request;
    request.set_name(id);
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

TEST_F(FleetEventsTest, AHostWhoseDaemonIsAliveStaysWhoseItIs) {
  Register(1);
  auto trusted = SetHost("host-1", v1::SetHostRequest::ACTION_TRUST);
  Commit();
  auto refused = TryRegister("host-1", CallerOf(2), CallerOf(1).token, "-2");
  Commit();
  EXPECT_TRUE(absl::IsAlreadyExists((*refused)->status())) << (*refused)->status();
  EXPECT_TRUE(state_->Trusts("host-1"));
  ExpectHostAsStored();
  auto distrusted = SetHost("host-1", v1::SetHostRequest::ACTION_DISTRUST);
  Commit();
  EXPECT_TRUE((*distrusted)->ok()) << (*distrusted)->status();
}

TEST_F(FleetEventsTest, ADeviceThatIsHeardOfAgainGetsWhatItsCallWaitsFor) {
  Register(1);
  Register(2);
  const int64_t job = StartJob();
  auto waiting = Acquire(1);
  now_ms_ += 31'000;  // longer than a lease
  Beat(2);
  Do([](FleetState& state) { state.Tick(); });
  Propose(job, 1);
  EXPECT_FALSE(waiting->has_value()) << "its daemon is silent";
  Beat(1);
  Commit();
  LeaseIn(waiting, 1);
}

// The searcher of a job that has failed may still be at work when the job begins again.
TEST_F(FleetEventsTest, AJobThatBeginsAgainWaitsForTheEndOfItsFirstSearcher) {
  Register(1);
  const int64_t job = StartJob();
  Propose(job, 1);
  auto first = Acquire(1);
  Commit();
  const v1::Lease lease = LeaseIn(first, 1);
  searcher::Done failed;
  failed.set_code(2);
  failed.set_error("out of memory");
  Do([&](FleetState& state) { EXPECT_FALSE(state.SearchDone(job, failed)); });
  Commit();
  const auto retry = [&](const v1::Job& read, const std::string& request) {
    auto retried = Nothing<v1::Job>();
    Do([&](FleetState& state) {
      state.RetryJob({"weavers", Role::kTuner, 0, "", "test"}, read, request,
                     *ParseSpec(MatmulSpec(5), absl::UnixEpoch()), To(retried));
    });
    Commit();
    return retried;
  };
  const v1::Job read = *LoadJob(*records_, job, "");
  // What was read a moment ago may have changed: here another priority, and it still ran.
  v1::Job stale = read;
  stale.set_state(v1::Job::STATE_RUNNING);
  stale.set_device_model("another");
  JobUpdate urgent;
  urgent.priority = 7;
  ASSERT_EQ(StoreUpdate(*records_, job, urgent), absl::OkStatus());
  v1::Job refreshed = stale;
  ASSERT_EQ(RefreshJob(*records_, refreshed), absl::OkStatus());
  EXPECT_EQ(refreshed.state(), v1::Job::STATE_FAILED);
  EXPECT_EQ(refreshed.device_model(), read.device_model());
  EXPECT_EQ(refreshed.spec().priority(), 7);
  auto retried = retry(stale, "again");
  ASSERT_TRUE(*retried && (*retried)->ok()) << (*retried)->status();
  EXPECT_EQ((**retried)->state(), v1::Job::STATE_QUEUED);
  // Its second life knows nothing of that searcher, whatever it asks.
  EXPECT_TRUE(searches_.empty());
  Propose(job, 3);
  Do([&](FleetState& state) {
    EXPECT_TRUE(state.AnswerIsReady(job, false));
    EXPECT_TRUE(state.TakeAnswer(job, false).stop());
    EXPECT_FALSE(state.PrepareSearch(job, "unused").has_value());
    EXPECT_FALSE(state.SearchDone(job, failed));
  });
  // What its device gives back waits, too.
  v1::ReleaseRequest release;
  release.set_session(sessions_.at(1));
  release.set_lease(lease.id());
  release.add_unstarted(lease.candidates(0).id());
  Do([&](FleetState& state) {
    state.Release(CallerOf(1), release, [](const auto& reply) { EXPECT_TRUE(reply.ok()); });
  });
  auto second = Acquire(1);
  Commit();
  EXPECT_FALSE(second->has_value());
  Do([&](FleetState& state) { state.SearchEnded(job); });
  ASSERT_EQ(searches_, std::deque<int64_t>{job});
  Do([&](FleetState& state) {
    const auto setup = state.PrepareSearch(job, "unused");
    ASSERT_TRUE(setup.has_value());
    ASSERT_EQ(setup->outstanding_size(), 1);
    EXPECT_EQ(setup->outstanding(0), "p0");
  });
  Propose(job, 1);
  Commit();
  EXPECT_EQ(LeaseIn(second, 1).candidates(0).id(), lease.candidates(0).id());
  Do([&](FleetState& state) { state.SearchEnded(job); });
  EXPECT_EQ(state_->searchers(), 1) << "it goes on with another one";
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
