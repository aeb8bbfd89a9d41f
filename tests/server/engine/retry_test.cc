// Jobs that have ended and begin again (RetryJob), and what may be changed of a job (UpdateJob).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/db/trial_store.h"
#include "tests/server/engine_support.h"

namespace heddle::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RetryTest : public EngineTest {
 protected:
  absl::StatusOr<v1::Job> Retry(const std::string& job, const std::string& request_id,
                                const std::string& tenant = "weavers") {
    return Wait<v1::Job>([&](auto reply) {
      engine_->RetryJob(Tenant(tenant), JobId(job), request_id, std::move(reply));
    });
  }
  absl::StatusOr<v1::Job> Update(const std::string& job, const JobUpdate& update) {
    return Wait<v1::Job>([&](auto reply) {
      engine_->UpdateJob(Tenant("weavers"), JobId(job), update, std::move(reply));
    });
  }
  static JobUpdate Priority(int32_t priority) {
    JobUpdate update;
    update.priority = priority;
    return update;
  }
  static JobUpdate Labels(std::map<std::string, std::string> labels) {
    JobUpdate update;
    update.labels = std::move(labels);
    return update;
  }
  void Cancel(const std::string& job) {
    auto cancelled = Wait<v1::Job>(
        [&](auto reply) { engine_->CancelJob(Tenant("weavers"), JobId(job), std::move(reply)); });
    ASSERT_TRUE(cancelled.ok()) << cancelled.status();
    AwaitState(job, v1::Job::STATE_CANCELLED);
  }
  // Nothing that the job's devices try is right.
  void WorkInVain(const std::string& session, const std::string& job) {
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (!IsTerminal(Get(job).state()) && absl::Now() < deadline) {
      auto lease = Acquire(session, 8);
      ASSERT_TRUE(lease.ok()) << lease.status();
      Idle();
      if (lease->id() == 0) continue;
      v1::ReportRequest report = ReportOf(session, *lease);
      for (int i = 0; i < report.results_size(); ++i) {
        *report.mutable_results(i) = ResultOf(lease->candidates(i), v1::OUTCOME_WRONG_ANSWER);
      }
      ASSERT_TRUE(Report(report).ok());
    }
  }
  // The states that the job's events tell of, each once in a row.
  std::vector<v1::Job::State> States(const std::string& job) {
    auto reader = store_->Read();
    auto events = LoadEvents(*reader, JobId(job), 0, 1000);
    EXPECT_TRUE(events.ok()) << events.status();
    std::vector<v1::Job::State> states;
    int64_t seq = 0;
    for (const v1::JobEvent& event : *events) {
      EXPECT_EQ(event.seq(), ++seq) << "a gap";
      if (states.empty() || states.back() != event.state()) states.push_back(event.state());
    }
    return states;
  }
};

TEST_F(RetryTest, ACancelledJobGoesOnFromItsTrials) {
  for (const bool restarts : {false, true}) {
    std::string session = Register("host");
    const std::string id = MustCreate(MatmulSpec(6, restarts ? 128 : 64));
    const std::string request = absl::StrCat("again-", restarts);
    EXPECT_TRUE(absl::IsFailedPrecondition(Retry(id, request).status())) << "it has not ended";
    ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session, 1))).ok());
    Cancel(id);
    EXPECT_EQ(Get(id).workloads(0).trials(), 1);
    EXPECT_TRUE(absl::IsNotFound(Retry(id, request, "spinners").status())) << "another's";
    for (int sent = 0; sent < 2; ++sent) {
      auto retried = Retry(id, request);
      ASSERT_TRUE(retried.ok()) << retried.status();
      EXPECT_FALSE(IsTerminal(retried->state()));
      EXPECT_FALSE(retried->has_end_time());
      EXPECT_EQ(retried->error(), "");
    }
    if (restarts) {
      Restart();
      session = Register("host");
    }
    Work(session, id);
    EXPECT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).error();
    EXPECT_EQ(Get(id).workloads(0).trials(), 6) << "what was left of its budget";
    std::set<std::string> points;
    for (const v1::Trial& trial : Trials(id)) {
      if (trial.final()) continue;
      EXPECT_TRUE(points.insert(trial.point()).second) << trial.point();
    }
    EXPECT_THAT(States(id),
                testing::IsSupersetOf({v1::Job::STATE_CANCELLED, v1::Job::STATE_SUCCEEDED}));
    // Sent again: what the first has come to. Another one: it has ended well.
    auto again = Retry(id, request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->state(), v1::Job::STATE_SUCCEEDED);
    const absl::Status ended = Retry(id, request + "-new").status();
    EXPECT_TRUE(absl::IsFailedPrecondition(ended)) << ended;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("is SUCCEEDED"));
  }
}

// Devices still have candidates of a job that has failed: what they report counts once it goes on.
TEST_F(RetryTest, AFailedJobTakesWhatItsDevicesStillHave) {
  const std::string first = Register("first", 1), second = Register("second", 2);
  const std::string third = Register("third", 3);
  const std::string id = MustCreate(MatmulSpec(12));
  ASSERT_TRUE(Report(ReportOf(first, MustAcquire(first, 1))).ok());  // the default
  const v1::Lease held = MustAcquire(third, 1);
  for (const std::string& session : {first, second}) {
    const v1::Lease lease = MustAcquire(session, 1);
    v1::ReleaseRequest release;
    release.set_session(session);
    release.set_lease(lease.id());
    release.add_unstarted(lease.candidates(0).id());
    release.set_fault(v1::ReleaseRequest::FAULT_WORKLOAD);
    release.set_detail("no naive program");
    ASSERT_TRUE(Release(release).ok());
  }
  AwaitState(id, v1::Job::STATE_FAILED);
  ASSERT_TRUE(Retry(id, "again").ok());
  const int64_t before = Get(id).workloads(0).trials();
  ASSERT_TRUE(Report(ReportOf(third, held)).ok());
  EXPECT_EQ(Get(id).workloads(0).trials(), before + 1);
  Work(third, id);
  EXPECT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).error();
  ExpectEachOnce(id, 12);
}

// A budget that is used up stays so, and is no success.
TEST_F(RetryTest, AJobThatHasFoundNothingFailsAgain) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(5));
  WorkInVain(session, id);
  ASSERT_EQ(Get(id).state(), v1::Job::STATE_FAILED);
  ASSERT_TRUE(Retry(id, "again").ok());
  Work(session, id);
  EXPECT_EQ(Get(id).state(), v1::Job::STATE_FAILED);
  EXPECT_THAT(Get(id).error(), HasSubstr("no valid schedule"));
  EXPECT_EQ(Get(id).workloads(0).trials(), 5);
}

TEST_F(RetryTest, WhatCannotBeginAgain) {
  v1::JobSpec spec = MatmulSpec(3);
  *spec.mutable_expire_time() =
      ToProto(absl::UnixEpoch() + absl::Milliseconds(now_ms_.load()) + absl::Seconds(10));
  const std::string expired = MustCreate(spec);
  Advance(absl::Seconds(11));
  AwaitState(expired, v1::Job::STATE_CANCELLED);
  absl::Status status = Retry(expired, "expired").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has expired"));
  // The tenant's quota is four jobs.
  const std::string id = MustCreate(MatmulSpec(3));
  Cancel(id);
  std::vector<std::string> open;
  for (int job = 0; job < 4; ++job) open.push_back(MustCreate(MatmulSpec(3)));
  status = Retry(id, "fifth").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(Get(id).state(), v1::Job::STATE_CANCELLED);
  Cancel(open.back());
  EXPECT_TRUE(Retry(id, "fourth").ok());
  // A cluster's engine has let go of its jobs.
  configure_ = [](EngineOptions& options) { options.max_searchers = 0; };
  Restart();
  status = Retry(open.back(), "cluster").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a cluster runs this server's jobs"));
}

TEST_F(RetryTest, OfATenantsJobsTheGreatestPriorityIsSearchedFirst) {
  std::mutex mutex;
  std::vector<int64_t> begun;
  configure_ = [](EngineOptions& options) { options.max_searchers = 1; };
  on_search_ = [&](const searcher::Setup& setup) {
    const std::lock_guard lock(mutex);
    if (begun.empty() || begun.back() != setup.job()) begun.push_back(setup.job());
  };
  Restart();
  const auto create = [&](int32_t priority) {
    v1::JobSpec spec = MatmulSpec(2);
    spec.set_priority(priority);
    return MustCreate(spec);
  };
  const std::string last = create(-1), second = create(1), third = create(1), first = create(0);
  ASSERT_TRUE(Update(first, Priority(7)).ok());
  Restart();  // it is stored
  EXPECT_EQ(Get(first).spec().priority(), 7);
  const std::string session = Register("host");
  for (const std::string& id : {first, second, third, last}) {
    Work(session, id);
    EXPECT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).error();
  }
  const std::lock_guard lock(mutex);
  EXPECT_THAT(begun, ElementsAre(JobId(first), JobId(second), JobId(third), JobId(last)));
}

TEST_F(RetryTest, LabelsChangeOfJobsThatHaveEndedToo) {
  v1::JobSpec spec = MatmulSpec(3);
  (*spec.mutable_labels())["team"] = "looms";
  const std::string id = MustCreate(spec);
  const auto found = [&](const std::string& key, const std::string& value) {
    v1::ListJobsRequest::Filter filter;
    (*filter.mutable_labels())[key] = value;
    int64_t before = 0;
    auto jobs = LoadJobs(*store_->Read(), "weavers", filter, true, before, 10);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    return jobs.ok() ? static_cast<int>(jobs->size()) : -1;
  };
  ASSERT_TRUE(Update(id, Labels({{"night", "yes"}, {"team", "threads"}})).ok());
  EXPECT_EQ(found("team", "looms"), 0);
  EXPECT_EQ(found("team", "threads"), 1);
  Cancel(id);
  auto updated = Update(id, Labels({}));
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_TRUE(updated->spec().labels().empty());
  EXPECT_EQ(updated->state(), v1::Job::STATE_CANCELLED);
  EXPECT_EQ(updated->spec().budget().trials(), 3) << "and nothing else";
  EXPECT_EQ(found("night", "yes"), 0);
  const auto others = Wait<v1::Job>([&](auto reply) {
    engine_->UpdateJob(Tenant("spinners"), JobId(id), Priority(1), std::move(reply));
  });
  EXPECT_TRUE(absl::IsNotFound(others.status())) << others.status();
}

TEST_F(RetryTest, AnUpdateChangesNothingElse) {
  v1::JobSpec spec = MatmulSpec(3);
  (*spec.mutable_labels())["night"] = "looms";
  spec.set_priority(2);
  const std::string id = MustCreate(spec);
  v1::JobSpec expected = Get(id).spec();
  JobUpdate both = Priority(-5);
  both.labels = {{"team", "\"threads\", 'and' \\ more"}, {"\"quoted\" $.path", "x"}};
  ASSERT_TRUE(Update(id, both).ok());
  expected.set_priority(-5);
  *expected.mutable_labels() = {both.labels->begin(), both.labels->end()};
  EXPECT_EQ(CanonicalBytes(Get(id).spec()), CanonicalBytes(expected)) << Get(id).DebugString();
  ASSERT_TRUE(Update(id, Labels({{"a", "1"}})).ok());
  ASSERT_TRUE(Update(id, Priority(0)).ok());
  expected.clear_priority();
  expected.clear_labels();
  (*expected.mutable_labels())["a"] = "1";
  EXPECT_EQ(CanonicalBytes(Get(id).spec()), CanonicalBytes(expected)) << Get(id).DebugString();
}

}  // namespace
}  // namespace heddle::server
