#include "server/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "base/sqlite.h"
#include "proto/values.h"
#include "tests/server/engine_support.h"
#include "tests/support.h"
#include "tuner/records/records_fields.h"

namespace heddle::server {
namespace {

using testing::HasSubstr;

TEST_F(EngineTest, AJobRunsToItsEnd) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(12));
  Work(session, id);
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_EQ(job.stop_reason(), v1::Job::STOP_REASON_TRIALS);
  EXPECT_EQ(job.device_model(), H100().target().name());
  EXPECT_GT(job.workloads(0).default_us(), 0);
  EXPECT_TRUE(job.workloads(0).best().final());
  EXPECT_FALSE(job.workloads(0).best().steps().empty());
  ExpectEachOnce(id, 12);
}

TEST_F(EngineTest, WorkloadsAreTunedOneAfterTheOther) {
  const std::string session = Register("host");
  v1::JobSpec spec = MatmulSpec(5);
  *spec.add_workloads() = MatmulSpec(1, 128).workloads(0);
  const std::string id = MustCreate(spec);
  Work(session, id);
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  ASSERT_EQ(job.workloads_size(), 2);
  for (const auto& progress : job.workloads()) {
    EXPECT_EQ(progress.trials(), 5);
    EXPECT_TRUE(progress.has_best());
  }
}

TEST_F(EngineTest, WithoutADeviceJobsWait) {
  const std::string id = MustCreate(MatmulSpec(3));
  AwaitState(id, v1::Job::STATE_WAITING_DEVICE);
  const std::string session = Register("host");
  AwaitState(id, v1::Job::STATE_RUNNING);
  // The daemon falls silent: the searcher ends, and another goes on when a device is back.
  Advance(absl::Seconds(40));
  AwaitState(id, v1::Job::STATE_WAITING_DEVICE);
  Work(Register("other"), id);
  ExpectEachOnce(id, 3);
}

TEST_F(EngineTest, ADaemonOfAnotherGeneratorGetsNoWork) {
  v1::RegisterRequest request;
  request.set_host_uuid("old");
  request.set_generator(measure::kGeneratorVersion + 1);
  *request.add_devices() = H100();
  auto response = Wait<v1::RegisterResponse>(
      [&](auto reply) { engine_->Register(As(0), request, std::move(reply)); });
  ASSERT_TRUE(response.ok());
  EXPECT_THAT(response->no_work_because(), HasSubstr("install the same"));
  const std::string id = MustCreate(MatmulSpec(3));
  AwaitState(id, v1::Job::STATE_WAITING_DEVICE);
  EXPECT_EQ(Acquire(response->session())->id(), 0);
}

TEST_F(EngineTest, ADrainingDeviceGetsNoWork) {
  const std::string session = Register("host");
  v1::SetDeviceStateRequest request;
  request.set_name("hosts/host/devices/GPU-cuda:0");
  request.set_state(v1::FleetDevice::STATE_DRAINING);
  auto set = Wait<v1::FleetDevice>(
      [&](auto reply) { engine_->SetDeviceState(As(0), request, std::move(reply)); });
  ASSERT_TRUE(set.ok()) << set.status();
  const std::string id = MustCreate(MatmulSpec(3));
  AwaitState(id, v1::Job::STATE_WAITING_DEVICE);
  // An administrator's word outlives the server and the daemon.
  Restart();
  const std::string again = Register("host");
  AwaitState(id, v1::Job::STATE_WAITING_DEVICE);
  request.set_state(v1::FleetDevice::STATE_ENABLED);
  set = Wait<v1::FleetDevice>(
      [&](auto reply) { engine_->SetDeviceState(As(0), request, std::move(reply)); });
  ASSERT_TRUE(set.ok()) << set.status();
  Work(again, id);
}

TEST_F(EngineTest, TheSameAcquireGivesTheSameLease) {
  const std::string session = Register("host");
  MustCreate(MatmulSpec(3));
  v1::AcquireRequest request;
  request.set_session(session);
  request.set_device("cuda:0");
  request.set_request_id("once");
  request.set_max(4);
  *request.mutable_wait_duration() = DurationOf(25);
  auto call = [&](auto reply) { engine_->Acquire(As(0), request, std::move(reply)); };
  auto first = Wait<v1::Lease>(call), second = Wait<v1::Lease>(call);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->id(), 0);
  EXPECT_EQ(first->id(), second->id());
}

TEST_F(EngineTest, AWaitingCallEndsInTime) {
  const std::string session = Register("host");
  v1::AcquireRequest request;
  request.set_session(session);
  request.set_device("cuda:0");
  request.set_request_id("waits");
  request.set_max(1);
  *request.mutable_wait_duration() = DurationOf(20);
  std::atomic<int> replies = 0;
  engine_->Acquire(As(0), request, [&](const absl::StatusOr<v1::Lease>& lease) {
    EXPECT_TRUE(lease.ok() && lease->id() == 0);
    ++replies;
  });
  Advance(absl::Seconds(19));
  EXPECT_EQ(replies, 0);
  Advance(absl::Seconds(1));
  EXPECT_EQ(replies, 1);
}

TEST_F(EngineTest, ImplausibleTimesAreRefused) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(1, 4096));
  const v1::Lease lease = MustAcquire(session);
  v1::ReportRequest report = ReportOf(session, lease);
  report.mutable_results(0)->mutable_result()->set_time_us(0.001);
  ASSERT_TRUE(Report(report).ok());
  AwaitState(id, v1::Job::STATE_FAILED);
  EXPECT_THAT(Get(id).error(), HasSubstr("no valid schedule"));
  EXPECT_EQ(Get(id).workloads(0).failed().at("IMPLAUSIBLE"), 1);
  EXPECT_FALSE(Get(id).workloads(0).has_best());
}

// What another tenant imports is neither tried, nor a leader, nor the best of a job.
TEST_F(EngineTest, AnImportDecidesNoJobsResult) {
  const std::string session = Register("host");
  v1::JobSpec spec = MatmulSpec(12);
  spec.set_search("random");
  const auto screened = [&](const std::string& job) {
    std::set<std::string> points;
    for (const v1::Trial& trial : Trials(job)) {
      if (!trial.final()) points.insert(trial.point());
    }
    return points;
  };
  const std::string first = MustCreate(spec);
  Work(session, first);
  const std::set<std::string> points = screened(first);
  ASSERT_TRUE(
      store_
          ->WriteAndWait([&](tuner::Records& records) -> absl::Status {
            std::stringstream forged;
            int64_t after = 0;
            auto page = records.ReadPage(after, 100);
            for (tuner::StoredTrial& stored : *page) {
              EXPECT_EQ(stored.trial.from, (tuner::Provenance{"weavers", 0, "host", first}));
              auto& result = stored.trial.result;
              const bool lie = stored.trial.point == *points.begin();
              if (!lie) result.outcome = measure::Outcome::kWrongAnswer;
              result.time_us = lie ? 1 : 0;
              forged << tuner::PrintLine(stored) << '\n';
            }
            if (absl::Status s = records.database().Run("DELETE FROM trial"); !s.ok()) {
              return s;
            }
            auto imported = records.Import(forged, {"mallory"});
            EXPECT_GE(imported->added, 12) << testing::PrintToString(imported->rejected);
            return imported.status();
          })
          .ok());
  const std::string second = MustCreate(spec);
  Work(session, second);
  EXPECT_EQ(screened(second), points);
  int finals = 0;
  for (const v1::Trial& trial : Trials(second)) finals += trial.final();
  EXPECT_GT(finals, 1);
  const v1::Job job = Get(second);
  EXPECT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_GT(job.workloads(0).best_us(), 100);
  EXPECT_GT(job.workloads(0).best().result().time_us(), 100);
}

// One host's word is the outcome of what it was given; two end the job, and so does one that is
// trusted.
TEST_F(EngineTest, AWorkloadThatTwoHostsCannotMeasureFailsItsJob) {
  const std::string first = Register("first", 1), sibling = Register("sibling", 1);
  const std::string second = Register("second", 2);
  const std::string id = MustCreate(MatmulSpec(9));
  const auto refuse = [&](const std::string& session) {
    const v1::Lease lease = MustAcquire(session, 1);
    v1::ReleaseRequest release;
    release.set_session(session);
    release.set_lease(lease.id());
    for (const auto& candidate : lease.candidates()) release.add_unstarted(candidate.id());
    release.set_fault(v1::ReleaseRequest::FAULT_WORKLOAD);
    release.set_detail("no naive program");
    ASSERT_TRUE(Release(release).ok());
  };
  refuse(first);
  EXPECT_FALSE(IsTerminal(Get(id).state()));
  EXPECT_EQ(Get(id).workloads(0).failed().at("LAUNCH_ERROR"), 1);
  EXPECT_EQ(Acquire(first)->id(), 0) << "who refuses gets no more of it";
  refuse(sibling);
  EXPECT_FALSE(IsTerminal(Get(id).state())) << "the same token";
  refuse(second);
  AwaitState(id, v1::Job::STATE_FAILED);
  EXPECT_EQ(Get(id).error(), "no naive program");
}

// What devices still have of a job that has failed is revoked, and leaves nothing behind.
TEST_F(EngineTest, AJobThatFailsRevokesItsLeases) {
  const std::string first = Register("first", 1), second = Register("second", 2);
  const std::string third = Register("third", 3);
  const std::string id = MustCreate(MatmulSpec(40));
  ASSERT_TRUE(Report(ReportOf(first, MustAcquire(first, 1))).ok());  // the default
  const v1::Lease held = MustAcquire(third, 1);
  for (const std::string& session : {first, second}) {
    v1::ReleaseRequest release;
    release.set_session(session);
    release.set_lease(MustAcquire(session, 1).id());
    release.set_fault(v1::ReleaseRequest::FAULT_WORKLOAD);
    release.set_detail("no naive program");
    ASSERT_TRUE(Release(release).ok());
  }
  AwaitState(id, v1::Job::STATE_FAILED);
  EXPECT_THAT(Beat(third, {held.id()})->revoke(), testing::ElementsAre(held.id()));
  v1::ReleaseRequest release;
  release.set_session(third);
  release.set_lease(held.id());
  release.add_unstarted(held.candidates(0).id());
  ASSERT_TRUE(Release(release).ok());
  ASSERT_TRUE(store_->WriteAndWait([](tuner::Records&) { return absl::OkStatus(); }).ok());
  for (const v1::Trial& trial : Trials(id)) {
    EXPECT_NE(TrialId(trial.name()), held.candidates(0).id()) << "waits for a device for ever";
  }
}

TEST_F(EngineTest, WhatIsReleasedGoesToOthers) {
  const std::string first = Register("first"), second = Register("second");
  const std::string id = MustCreate(MatmulSpec(2));
  const v1::Lease lease = MustAcquire(first);
  v1::ReleaseRequest release;
  release.set_session(first);
  release.set_lease(lease.id());
  for (const auto& candidate : lease.candidates()) release.add_unstarted(candidate.id());
  ASSERT_TRUE(Release(release).ok());
  const v1::Lease again = MustAcquire(second);
  EXPECT_EQ(again.candidates(0).id(), lease.candidates(0).id());
  ASSERT_TRUE(Report(ReportOf(second, again)).ok());
  Work(second, id);
  ExpectEachOnce(id, 2);
}

// Every trial is slower than the default: a plateau from the first on, whoever searches.
TEST_F(EngineTest, APlateauIsCountedAcrossRestarts) {
  constexpr int kPlateau = 30, kInFlight = 16;
  v1::JobSpec spec = MatmulSpec(0);
  spec.mutable_budget()->set_plateau(kPlateau);
  const std::string id = MustCreate(spec);
  std::string session = Register("host");
  for (int restart = 0; restart < 3; ++restart) {
    for (int leases = 0; leases < 3; ++leases) {
      ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
    }
    Restart();
    session = Register("host");
  }
  Work(session, id);
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_EQ(job.stop_reason(), v1::Job::STOP_REASON_PLATEAU);
  EXPECT_GE(job.workloads(0).trials(), 1 + kPlateau);
  EXPECT_LE(job.workloads(0).trials(), 1 + kPlateau + kInFlight);
}

// What a server that was killed has used of a budget of seconds stays used.
TEST_F(EngineTest, SecondsAreCountedAcrossRestarts) {
  v1::JobSpec spec = MatmulSpec(0);
  *spec.mutable_budget()->mutable_search_duration() = DurationOf(100);
  const std::string id = MustCreate(spec);
  const std::string session = Register("host");
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
  for (int i = 0; i < 4; ++i) {
    Advance(absl::Seconds(10));
    ASSERT_TRUE(Beat(session).ok());
  }
  const auto used = [&] {
    auto reader = store_->Read();
    auto uses = LoadUse(*reader, JobId(id));
    return uses.ok() ? uses->at(0).search_s : -1;
  };
  ASSERT_TRUE(store_->WriteAndWait([](tuner::Records&) { return absl::OkStatus(); }).ok());
  // What the test's clock may go on by while searchers are waited for.
  constexpr double kWaits = tests::kSanitized ? 9 : 1;
  EXPECT_NEAR(used(), 40, kWaits);
  before_commit_ = [] { return absl::AbortedError("killed"); };
  Close();
  before_commit_ = nullptr;
  std::atomic<double> left = 0;
  on_search_ = [&](const searcher::Setup& setup) { left = setup.seconds(); };
  Open();
  MustAcquire(Register("host"));
  EXPECT_NEAR(left, 60, kWaits);
  Close();
}

// The clock looks at searches whose threads have not begun yet: they have used nothing.
TEST_F(EngineTest, SecondsAreCountedFromTheBeginningOfASearch) {
  Register("host");
  v1::JobSpec spec = MatmulSpec(0);
  *spec.mutable_budget()->mutable_search_duration() = DurationOf(100);
  for (int i = 0; i < 4; ++i) {  // as many as may search
    const std::string id = MustCreate(spec);
    for (int tick = 0; tick < 5; ++tick) engine_->Tick();
    ASSERT_TRUE(store_->WriteAndWait([](tuner::Records&) { return absl::OkStatus(); }).ok());
    auto reader = store_->Read();
    const auto uses = LoadUse(*reader, JobId(id));
    ASSERT_TRUE(uses.ok()) << uses.status();
    EXPECT_EQ(uses->at(0).search_s, 0) << i;
  }
}

TEST_F(EngineTest, RequestsAreRememberedForAWeek) {
  auto first = Create(MatmulSpec(3), "again");
  ASSERT_TRUE(first.ok()) << first.status();
  Advance(absl::Hours(24 * 6));
  ASSERT_TRUE(Create(MatmulSpec(3), "later").ok());
  auto known = Create(MatmulSpec(3), "again");
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ(known->name(), first->name());
  Advance(absl::Hours(24 * 2));
  auto reader = store_->Read();
  const auto requests = [&] { return reader->database().QueryInt("SELECT count(*) FROM request"); };
  for (int i = 0; i < 1000 && requests().value_or(0) > 1; ++i)
    absl::SleepFor(absl::Milliseconds(2));
  EXPECT_EQ(requests().value_or(0), 1) << "the later one";
  auto forgotten = Create(MatmulSpec(3), "again");
  ASSERT_TRUE(forgotten.ok()) << forgotten.status();
  EXPECT_NE(forgotten->name(), first->name());
  auto plan = reader->database().Query("EXPLAIN QUERY PLAN DELETE FROM request WHERE when_us < 0");
  ASSERT_TRUE(*plan.Next());
  EXPECT_THAT(plan.Text(3), HasSubstr("INDEX request_age")) << "looks at every request";
}

TEST_F(EngineTest, AnExpiredJobIsCancelled) {
  v1::JobSpec spec = MatmulSpec(3);
  *spec.mutable_expire_time() =
      ToProto(absl::UnixEpoch() + absl::Milliseconds(now_ms_.load()) + absl::Seconds(10));
  const std::string id = MustCreate(spec);
  Advance(absl::Seconds(11));
  AwaitState(id, v1::Job::STATE_CANCELLED);
  EXPECT_EQ(Get(id).error(), "expired");
}

TEST_F(EngineTest, CancellingRevokesLeasesAndKeepsTrials) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(20));
  v1::Lease lease = MustAcquire(session);
  ASSERT_TRUE(Report(ReportOf(session, lease)).ok());
  lease = MustAcquire(session);
  auto cancelled = Wait<v1::Job>(
      [&](auto reply) { engine_->CancelJob(Tenant("weavers"), JobId(id), std::move(reply)); });
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->state(), v1::Job::STATE_CANCELLING);
  auto beat = Beat(session, {lease.id()});
  ASSERT_TRUE(beat.ok());
  EXPECT_THAT(beat->revoke(), testing::ElementsAre(lease.id()));
  ASSERT_TRUE(Report(ReportOf(session, lease)).ok());
  AwaitState(id, v1::Job::STATE_CANCELLED);
  EXPECT_EQ(Get(id).workloads(0).trials(), 1 + lease.candidates_size());
}

TEST_F(EngineTest, OfOthersNothingIsSeen) {
  const std::string id = MustCreate(MatmulSpec(3));
  auto cancelled = Wait<v1::Job>(
      [&](auto reply) { engine_->CancelJob(Tenant("spinners"), JobId(id), std::move(reply)); });
  EXPECT_TRUE(absl::IsNotFound(cancelled.status())) << cancelled.status();
  EXPECT_NE(Get(id).state(), v1::Job::STATE_CANCELLED);
  // But an administrator sees and ends everybody's.
  cancelled =
      Wait<v1::Job>([&](auto reply) { engine_->CancelJob(As(0), JobId(id), std::move(reply)); });
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  AwaitState(id, v1::Job::STATE_CANCELLED);
  EXPECT_EQ(Get(id).error(), "cancelled by an administrator");
}

TEST_F(EngineTest, ATenantHasSoManyJobs) {
  for (int i = 0; i < 4; ++i) MustCreate(MatmulSpec(3));
  auto fifth = Create(MatmulSpec(3), "fifth");
  EXPECT_TRUE(absl::IsResourceExhausted(fifth.status())) << fifth.status();
  EXPECT_TRUE(Create(MatmulSpec(3), "first", "spinners").ok());
}

}  // namespace
}  // namespace heddle::server
