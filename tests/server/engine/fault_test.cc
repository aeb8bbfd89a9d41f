// Faults that the server must survive, each with the invariant that holds through it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "tests/server/engine_support.h"
#include "tuner/artefact/query.h"

namespace heddle::server {
namespace {

class ServerFaultTest : public EngineTest {
 protected:
  // What QueryBest would answer for a job's first workload.
  absl::StatusOr<tuner::Answer> Query(const std::string& job) {
    auto program = search_space::ParseWorkload(Get(job).workloads(0).workload().text());
    auto reader = store_->Read();
    return tuner::FindExact(
        *program, tuner::BenchOf(measure::FromProto(H100()), measure::L2Policy::kCold), *reader);
  }
  int KillsOf(int64_t candidate) {
    EXPECT_TRUE(store_->WriteAndWait([](tuner::Records&) { return absl::OkStatus(); }).ok());
    auto reader = store_->Read();
    auto row = LoadTrial(*reader, candidate);
    EXPECT_TRUE(row.ok() && row->has_value());
    return row.ok() && row->has_value() ? (*row)->kills : -1;
  }
  // A candidate that two daemons have: the first was silent for longer than its lease.
  struct Contested {
    std::string first, second, job;
    v1::Lease lease, again;
  };
  Contested Contest(int trials) {
    Contested c{Register("first"), Register("second"), MustCreate(MatmulSpec(trials)), {}, {}};
    c.lease = MustAcquire(c.first);
    now_ms_ += 31'000;
    EXPECT_TRUE(Beat(c.second).ok());
    engine_->Tick();
    c.again = MustAcquire(c.second);
    EXPECT_EQ(c.again.candidates(0).id(), c.lease.candidates(0).id());
    return c;
  }
  // As another device has measured it.
  static v1::ReportRequest ReportAt(const std::string& session, const v1::Lease& lease,
                                    double time_us) {
    v1::ReportRequest report = ReportOf(session, lease);
    for (auto& result : *report.mutable_results()) result.mutable_result()->set_time_us(time_us);
    return report;
  }
};

TEST_F(ServerFaultTest, KilledBetweenCommitAndReply) {
  std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(6));
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());  // the default
  const v1::Lease lease = MustAcquire(session);
  ASSERT_TRUE(Report(ReportOf(session, lease)).ok());  // the reply gets lost
  const int64_t records = CountRecords();
  Restart();
  EXPECT_FALSE(Report(ReportOf(session, lease)).ok()) << "the session is not known any more";
  session = Register("host");
  auto again = Report(ReportOf(session, lease));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->committed_size(), lease.candidates_size());
  EXPECT_EQ(CountRecords(), records);
  Work(session, id);
  ExpectEachOnce(id, 6);
}

TEST_F(ServerFaultTest, KilledBeforeCommit) {
  std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(6));
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
  const v1::Lease lease = MustAcquire(session);
  const int64_t records = CountRecords();
  before_commit_ = [] { return absl::AbortedError("killed"); };
  EXPECT_FALSE(Report(ReportOf(session, lease)).ok());
  before_commit_ = nullptr;
  EXPECT_EQ(CountRecords(), records);
  Restart();
  session = Register("host");
  auto again = Report(ReportOf(session, lease));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(CountRecords(), records + lease.candidates_size());
  Work(session, id);
  ExpectEachOnce(id, 6);
}

TEST_F(ServerFaultTest, OneRequestIdFromManyThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> ids(50);
  for (std::string& id : ids) {
    threads.emplace_back([&] {
      auto job = Create(MatmulSpec(3), "the-same");
      EXPECT_TRUE(job.ok()) << job.status();
      if (job.ok()) id = job->name();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(ids, testing::Each(ids.front()));
  auto other = Create(MatmulSpec(4), "the-same");
  EXPECT_TRUE(absl::IsAlreadyExists(other.status())) << other.status();
  // Across a restart too.
  Restart();
  auto again = Create(MatmulSpec(3), "the-same");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->name(), ids.front());
}

TEST_F(ServerFaultTest, RestartedInTheMiddleOfAWatch) {
  std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(12));
  std::vector<int64_t> told;
  for (int restart = 0; restart < 3; ++restart) {
    absl::Notification heard;
    auto subscription = engine_->Watch(JobId(id), [&](const auto& event) {
      told.push_back(event->seq());
      if (!heard.HasBeenNotified()) heard.Notify();
    });
    ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session, 2))).ok());
    // Whoever watches is told behind the reply.
    EXPECT_TRUE(heard.WaitForNotificationWithTimeout(absl::Seconds(120)));
    subscription.reset();
    Restart();
    session = Register("host");
  }
  Work(session, id);
  auto reader = store_->Read();
  auto events = LoadEvents(*reader, JobId(id), 0, 1000);
  ASSERT_TRUE(events.ok()) << events.status();
  for (size_t i = 0; i < events->size(); ++i) {
    EXPECT_EQ(events->at(i).seq(), static_cast<int64_t>(i) + 1) << "a gap";
  }
  EXPECT_TRUE(IsTerminal(events->back().state()));
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
}

TEST_F(ServerFaultTest, DaemonKilledInMidBatch) {
  const std::string first = Register("first");
  const std::string id = MustCreate(MatmulSpec(9));
  ASSERT_TRUE(Report(ReportOf(first, MustAcquire(first))).ok());
  const v1::Lease lease = MustAcquire(first, 8);
  ASSERT_GE(lease.candidates_size(), 3);
  v1::ReportRequest part = ReportOf(first, lease);
  part.mutable_results()->DeleteSubrange(2, part.results_size() - 2);
  ASSERT_TRUE(Report(part).ok());
  Advance(absl::Seconds(31));
  const std::string second = Register("second");
  std::set<int64_t> rest;
  const size_t expected = lease.candidates_size() - 2;
  while (rest.size() < expected) {
    const v1::Lease again = MustAcquire(second, 8);
    for (const auto& candidate : again.candidates()) {
      EXPECT_TRUE(rest.insert(candidate.id()).second) << "given twice";
    }
    ASSERT_TRUE(Report(ReportOf(second, again)).ok());
  }
  for (int i = 0; i < lease.candidates_size(); ++i) {
    EXPECT_EQ(rest.contains(lease.candidates(i).id()), i >= 2);
  }
  Work(second, id);
  ExpectEachOnce(id, 9);
}

TEST_F(ServerFaultTest, StoppedPastItsLeaseAndContinued) {
  const Contested c = Contest(4);
  // The first continues and reports, late; then the second does.
  auto late = Report(ReportOf(c.first, c.lease));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->committed_size(), 1);
  const int64_t records = CountRecords();
  auto twice = Report(ReportOf(c.second, c.again));
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(CountRecords(), records) << "counted once";
  Work(c.second, c.job);
  ExpectEachOnce(c.job, 4);
}

// Both devices have measured the candidate: the job counts the first, the second is a record too.
TEST_F(ServerFaultTest, MeasuredTwiceAndCountedOnce) {
  const Contested c = Contest(3);
  ASSERT_TRUE(Report(ReportOf(c.first, c.lease)).ok());
  const int64_t records = CountRecords();
  for (int sent = 0; sent < 3; ++sent) {
    auto reply = Report(ReportAt(c.second, c.again, 90));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_THAT(reply->committed(), testing::ElementsAre(c.again.candidates(0).id()));
    EXPECT_EQ(CountRecords(), records + 1);
  }
  EXPECT_EQ(Get(c.job).workloads(0).trials(), 1);
  Work(c.second, c.job);
  EXPECT_EQ(Get(c.job).workloads(0).trials(), 3);
  EXPECT_EQ(CountRecords(), static_cast<int64_t>(Trials(c.job).size()) + 1);
}

// The same, and the server is killed before the late one comes, and again before it is sent twice.
TEST_F(ServerFaultTest, MeasuredTwiceAcrossRestarts) {
  const Contested c = Contest(3);
  ASSERT_TRUE(Report(ReportOf(c.second, c.again)).ok());
  const int64_t records = CountRecords();
  for (int sent = 0; sent < 3; ++sent) {
    Restart();
    auto reply = Report(ReportAt(Register("first"), c.lease, 90));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_THAT(reply->committed(), testing::ElementsAre(c.lease.candidates(0).id()));
    EXPECT_EQ(CountRecords(), records + 1) << "a measurement was lost, or is there twice";
  }
  EXPECT_EQ(Get(c.job).workloads(0).trials(), 1);
  Work(Register("second"), c.job);
  EXPECT_EQ(Get(c.job).workloads(0).trials(), 3);
}

// Nobody else was faster: what comes late, after a restart, is the job's trial.
TEST_F(ServerFaultTest, LateAcrossARestart) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(4));
  const v1::Lease lease = MustAcquire(session);
  Advance(absl::Seconds(31));
  ASSERT_TRUE(store_->WriteAndWait([](tuner::Records&) { return absl::OkStatus(); }).ok());
  Restart();
  const std::string again = Register("host");
  auto late = Report(ReportOf(again, lease));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->committed_size(), lease.candidates_size());
  EXPECT_EQ(Get(id).workloads(0).trials(), lease.candidates_size());
  Work(again, id);
  ExpectEachOnce(id, 4);
}

// A job has ended while a device measured for it: the measurement is kept all the same, and what
// is served has its steps.
TEST_F(ServerFaultTest, FinalsMeasuredTwiceAcrossTheEndAndARestart) {
  const std::string first = Register("first"), second = Register("second");
  const std::string id = MustCreate(MatmulSpec(1));
  ASSERT_TRUE(Report(ReportOf(first, MustAcquire(first))).ok());
  const v1::Lease finals = MustAcquire(first);
  ASSERT_EQ(finals.kind(), v1::Lease::KIND_FINALS);
  now_ms_ += 31'000;
  ASSERT_TRUE(Beat(second).ok());
  engine_->Tick();
  Work(second, id);
  ASSERT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).error();
  const int64_t records = CountRecords();
  Restart();
  auto late = Report(ReportAt(Register("first"), finals, 50));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(CountRecords(), records + finals.candidates_size());
  auto best = Query(id);
  ASSERT_TRUE(best.ok() && best->match == tuner::Match::kExact) << best.status();
  EXPECT_EQ(best->source->trial.result.time_us, 50);
  EXPECT_FALSE(best->steps.empty());
}

// Only the daemon that holds a lease keeps it alive, and only for what it has is it to blame.
TEST_F(ServerFaultTest, OthersDoNotKeepALease) {
  const std::string first = Register("first"), second = Register("second");
  MustCreate(MatmulSpec(3));
  const v1::Lease lease = MustAcquire(first);
  const int64_t candidate = lease.candidates(0).id();
  for (int beats = 0; beats < 4; ++beats) {
    now_ms_ += 10'000;
    auto beat = Beat(second, {lease.id()}, {candidate});
    ASSERT_TRUE(beat.ok()) << beat.status();
    EXPECT_THAT(beat->revoke(), testing::ElementsAre(lease.id()));
    engine_->Tick();
  }
  const v1::Lease again = MustAcquire(second);
  ASSERT_EQ(again.candidates_size(), 1);
  EXPECT_EQ(again.candidates(0).id(), candidate);
  auto reader = store_->Read();
  auto row = LoadTrial(*reader, candidate);
  ASSERT_TRUE(row.ok() && row->has_value());
  EXPECT_EQ((*row)->kills, 0) << "the first did not say that it ran";
}

TEST_F(ServerFaultTest, PartitionOfAMinute) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(6));
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
  const v1::Lease lease = MustAcquire(session, 8);
  for (int i = 0; i < 12; ++i) Advance(absl::Seconds(5));
  // It measured all the while; its heartbeat is the first thing that comes through.
  auto beat = Beat(session, {lease.id()});
  ASSERT_TRUE(beat.ok()) << beat.status();
  auto late = Report(ReportOf(session, lease));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->committed_size(), lease.candidates_size()) << "a trial was lost";
  Work(session, id);
  ExpectEachOnce(id, 6);
}

// A candidate that takes its worker along every time: two workers, across restarts and hosts.
TEST_F(ServerFaultTest, KillerCandidate) {
  std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(3));
  v1::Lease lease = MustAcquire(session);
  ASSERT_TRUE(Report(ReportOf(session, lease)).ok());
  lease = MustAcquire(session, 1);
  const int64_t killer = lease.candidates(0).id();
  v1::ReportRequest report;
  report.set_session(session);
  report.set_lease(lease.id());
  *report.add_results() = ResultOf(lease.candidates(0), v1::OUTCOME_WORKER_LOST);
  ASSERT_TRUE(Report(report).ok());
  Restart();
  session = Register("other");
  // Now the whole host goes down with it.
  int kills = 1;
  for (int leases = 0; leases < 20 && kills < 2; ++leases) {
    lease = MustAcquire(session, 1);
    if (lease.candidates(0).id() != killer) {
      ASSERT_TRUE(Report(ReportOf(session, lease)).ok());
      continue;
    }
    ASSERT_TRUE(Beat(session, {lease.id()}, {killer}).ok());
    Advance(absl::Seconds(31));
    // Nobody is to blame before the host is back, and has booted.
    EXPECT_EQ(KillsOf(killer), kills);
    v1::RegisterRequest booted = RegistrationOf("other");
    booted.set_boot_id("boot-2");
    session = Register(booted);
    ++kills;
  }
  ASSERT_EQ(kills, 2);
  session = Register("third");
  Work(session, id);
  bool found = false;
  for (const v1::Trial& trial : Trials(id)) {
    if (TrialId(trial.name()) != killer) continue;
    found = true;
    EXPECT_EQ(trial.state(), v1::Trial::STATE_QUARANTINED);
    EXPECT_EQ(trial.kills(), 2);
    EXPECT_EQ(trial.result().outcome(), v1::OUTCOME_ILLEGAL_ACCESS);
  }
  EXPECT_TRUE(found);
  ExpectEachOnce(id, 3);
  // Nor does another job try it again.
  const std::string next = MustCreate(MatmulSpec(3));
  Work(session, next);
  std::set<std::string> points;
  for (const std::string& job : {id, next}) {
    for (const v1::Trial& trial : Trials(job)) {
      if (!trial.final()) {
        EXPECT_TRUE(points.insert(trial.point()).second);
      }
    }
  }
}

TEST_F(ServerFaultTest, DiskFullAtCommit) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(6));
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
  const v1::Lease lease = MustAcquire(session);
  const int64_t records = CountRecords();
  // The file may not grow by a single page: SQLite says FULL, as it does on a full disk.
  auto limit = [&](int64_t pages) {
    ASSERT_TRUE(store_
                    ->WriteAndWait([&](tuner::Records& r) {
                      return r.database().Run(absl::StrCat("PRAGMA max_page_count = ", pages));
                    })
                    .ok());
  };
  limit(1);
  v1::ReportRequest report = ReportOf(session, lease);
  // More than fits into the pages that are there.
  for (auto& result : *report.mutable_results()) {
    result.mutable_result()->set_detail(std::string(4000, 'x'));
  }
  auto refused = Report(report);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_EQ(CountRecords(), records);
  limit(1 << 30);
  auto again = Report(report);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->committed_size(), lease.candidates_size());
  EXPECT_EQ(CountRecords(), records + lease.candidates_size());
  Work(session, id);
  EXPECT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).error();
}

// The system's clock is set forward and back by days: leases, waiting calls and silence are timed
// by another clock.
TEST_F(ServerFaultTest, TheClockJumps) {
  const std::string first = Register("first"), second = Register("second");
  const std::string id = MustCreate(MatmulSpec(9));
  ASSERT_TRUE(Report(ReportOf(first, MustAcquire(first))).ok());
  for (int hours : {48, -48, 0}) {
    const v1::Lease lease = MustAcquire(first, 2);
    jump_hours_ = hours;
    Advance(absl::Seconds(5));
    auto beat = Beat(first, {lease.id()});
    ASSERT_TRUE(beat.ok()) << "the session was lost: " << beat.status();
    EXPECT_THAT(beat->revoke(), testing::IsEmpty()) << "the lease was lost";
    auto reported = Report(ReportOf(first, lease));
    ASSERT_TRUE(reported.ok()) << reported.status();
    EXPECT_EQ(reported->committed_size(), lease.candidates_size());
  }
  // A silent daemon's lease ends as it does otherwise, with the clock two days back.
  const v1::Lease lease = MustAcquire(first, 1);
  jump_hours_ = -48;
  now_ms_ += 31'000;
  ASSERT_TRUE(Beat(second).ok());
  engine_->Tick();
  // Behind what gives the candidate back.
  ASSERT_TRUE(store_->WriteAndWait([](tuner::Records&) { return absl::OkStatus(); }).ok());
  const v1::Lease again = MustAcquire(second, 1);
  EXPECT_EQ(again.candidates(0).id(), lease.candidates(0).id());
  ASSERT_TRUE(Report(ReportOf(second, again)).ok());
  Work(second, id);
  // And a call that waits for work returns in time.
  absl::Notification replied;
  v1::AcquireRequest wait;
  wait.set_session(second);
  wait.set_device("cuda:0");
  wait.set_request_id("wait");
  wait.set_max(1);
  *wait.mutable_wait_duration() = DurationOf(10);
  engine_->Acquire(As(0), wait, [&](const absl::StatusOr<v1::Lease>&) { replied.Notify(); });
  EXPECT_FALSE(replied.HasBeenNotified());
  jump_hours_ = -96;
  Advance(absl::Seconds(11));
  EXPECT_TRUE(replied.WaitForNotificationWithTimeout(absl::Seconds(10)));
  ExpectEachOnce(id, 9);
}

TEST_F(ServerFaultTest, AFlippedBitIsNeverServed) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(4));
  Work(session, id);
  auto best = Query(id);
  ASSERT_TRUE(best.ok() && best->match == tuner::Match::kExact) << best.status();
  const int64_t row = best->source->trial.id;
  ASSERT_TRUE(store_
                  ->WriteAndWait([&](tuner::Records& r) {
                    return r.database().Run("UPDATE trial SET time_us = time_us - 1 WHERE id = ?",
                                            row);
                  })
                  .ok());
  auto next = Query(id);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->match == tuner::Match::kNone || next->source->trial.id != row);
}

// A wrong answer in a tenth of the time, whatever its daemon says of it: neither a best nor a
// final.
TEST_F(ServerFaultTest, WrongButFastestIsNeverBest) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(6));
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
  const v1::Lease lease = MustAcquire(session, 1);
  v1::ReportRequest wrong = ReportAt(session, lease, 10);
  wrong.mutable_results(0)->mutable_result()->set_outcome(v1::OUTCOME_WRONG_ANSWER);
  ASSERT_TRUE(Report(wrong).ok());
  Work(session, id);
  ASSERT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).error();
  EXPECT_GT(Get(id).workloads(0).best_us(), 10);
  auto best = Query(id);
  ASSERT_TRUE(best.ok() && best->match == tuner::Match::kExact) << best.status();
  EXPECT_GT(best->source->trial.result.time_us, 10);
  std::string point;
  for (const v1::Trial& trial : Trials(id)) {
    if (TrialId(trial.name()) == lease.candidates(0).id()) point = trial.point();
  }
  ASSERT_FALSE(point.empty());
  for (const v1::Trial& trial : Trials(id)) {
    EXPECT_FALSE(trial.final() && trial.point() == point) << "measured again among the best";
  }
}

TEST_F(ServerFaultTest, CancelRacesCompletion) {
  const std::string session = Register("host");
  for (int round = 0; round < 20; ++round) {
    const std::string id = MustCreate(MatmulSpec(1, 64 + round));
    ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
    const v1::Lease finals = MustAcquire(session);
    ASSERT_EQ(finals.kind(), v1::Lease::KIND_FINALS);
    std::thread cancel([&] {
      auto job = Wait<v1::Job>(
          [&](auto reply) { engine_->CancelJob(As(0), JobId(id), std::move(reply)); });
      EXPECT_TRUE(job.ok()) << job.status();
    });
    EXPECT_TRUE(Report(ReportOf(session, finals)).ok());
    cancel.join();
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (!IsTerminal(Get(id).state()) && absl::Now() < deadline) {
      engine_->Tick();
      absl::SleepFor(absl::Milliseconds(1));
    }
    auto reader = store_->Read();
    auto events = LoadEvents(*reader, JobId(id), 0, 1000);
    ASSERT_TRUE(events.ok()) << events.status();
    int terminal = 0;
    for (const v1::JobEvent& event : *events) terminal += IsTerminal(event.state());
    EXPECT_EQ(terminal, 1) << id;
    EXPECT_EQ(events->back().state(), Get(id).state());
  }
}

}  // namespace
}  // namespace heddle::server
