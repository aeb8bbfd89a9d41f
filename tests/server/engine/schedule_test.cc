// Who gets searchers and devices, and what it costs to find out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "proto/values.h"
#include "tests/server/engine_support.h"

namespace heddle::server {
namespace {

v1::Device OfModel(const std::string& name, const std::string& id = "cuda:0") {
  v1::Device device = H100(id);
  device.mutable_target()->set_name(name);
  return device;
}

class ScheduleTest : public EngineTest {
 protected:
  void OpenWith(std::function<void(EngineOptions&)> configure) {
    Close();
    configure_ = std::move(configure);
    Open();
  }
  v1::JobSpec Endless(const std::string& model = "") {
    v1::JobSpec spec = MatmulSpec(0, 64);
    *spec.mutable_budget()->mutable_search_duration() = DurationOf(1e8);
    spec.set_search("random");
    spec.mutable_device()->set_model(model);
    return spec;
  }
  std::string MustCreateFor(const std::string& tenant, const v1::JobSpec& spec) {
    auto job = Create(spec, absl::StrCat("request-", ++requests_), tenant);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->name() : "";
  }
  // One turn of a device; false: there was nothing to do.
  bool Turn(const std::string& session) {
    auto lease = Acquire(session, 4);
    EXPECT_TRUE(lease.ok()) << lease.status();
    if (!lease.ok() || lease->id() == 0) return false;
    EXPECT_TRUE(Report(ReportOf(session, *lease)).ok());
    return true;
  }
  // The device works while the clock goes on: a lease takes it a second.
  void WorkFor(const std::string& session, absl::Duration time, const std::string& until = "") {
    for (absl::Duration spent; spent < time; spent += absl::Seconds(1)) {
      // Searches take real time, which hardly counts here.
      const absl::Time limit = absl::Now() + absl::Seconds(10);
      while (!Turn(session) && absl::Now() < limit) Idle();
      ASSERT_TRUE(Beat(session).ok());
      Advance(absl::Seconds(1));
      if (!until.empty() && IsTerminal(Get(until).state())) return;
    }
  }
};

// A fleet's heartbeats do not look at jobs that nothing can work on, nor do ticks.
TEST_F(ScheduleTest, JobsThatMatchNothingCostNothing) {
  constexpr int kHosts = 125, kDevices = 8, kJobs = 1000;
  OpenWith([](EngineOptions& options) {
    options.open_jobs_per_tenant = kJobs;
    options.match_every = absl::Seconds(1);
  });
  std::vector<std::string> sessions;
  for (int host = 0; host < kHosts; ++host) {
    v1::RegisterRequest request = RegistrationOf(absl::StrCat("host-", host));
    request.clear_devices();
    for (int d = 0; d < kDevices; ++d) {
      *request.add_devices() = OfModel("Model A", absl::StrCat("cuda:", d));
    }
    sessions.push_back(Register(request));
  }
  before_commit_ = [] { return absl::OkStatus(); };
  std::atomic<int> created = 0;
  const auto workloads = ParseSpec(Endless("Model B"), absl::UnixEpoch());
  ASSERT_TRUE(workloads.ok()) << workloads.status();
  int64_t before = engine_->matches();
  for (int job = 0; job < kJobs; ++job) {
    engine_->CreateJob("weavers", "CreateJob", absl::StrCat("job-", job), Endless("Model B"),
                       *workloads, [&](const absl::StatusOr<v1::Job>& reply) {
                         EXPECT_TRUE(reply.ok()) << reply.status();
                         ++created;
                       });
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (created < kJobs && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  ASSERT_EQ(created, kJobs);
  EXPECT_LE(engine_->matches() - before, kJobs) << "each is looked at once";
  before = engine_->matches();
  for (const std::string& session : sessions) ASSERT_TRUE(Beat(session).ok());
  for (int tick = 0; tick < 100; ++tick) Advance(absl::Milliseconds(100));
  EXPECT_EQ(engine_->matches(), before);
  // But one device of theirs wakes them; one that comes and goes does so once a second.
  Register(RegistrationOf("b", OfModel("Model B")));
  EXPECT_LE(engine_->matches() - before, 2 * kJobs + 100);
  before = engine_->matches();
  for (int flap = 0; flap < 10; ++flap) Register(RegistrationOf("b", OfModel("Model B")));
  EXPECT_LE(engine_->matches() - before, 100);
}

TEST_F(ScheduleTest, ATenantWithManyEndlessJobsHoldsUpNobody) {
  OpenWith([](EngineOptions& options) {
    options.max_searchers = 1;
    options.open_jobs_per_tenant = 64;
    options.slice = absl::Seconds(60);
  });
  const std::string session = Register("host");
  for (int job = 0; job < 64; ++job) MustCreateFor("greedy", Endless());
  WorkFor(session, absl::Seconds(5));
  v1::JobSpec small = MatmulSpec(10, 128);
  small.set_search("random");
  const std::string id = MustCreateFor("modest", small);
  const int64_t begun = now_ms_;
  WorkFor(session, absl::Seconds(120), id);
  EXPECT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).ShortDebugString();
  EXPECT_LE(now_ms_ - begun, 120'000) << "more than two slices";
  EXPECT_EQ(Get(id).workloads(0).trials(), 10);
}

// A searcher is not begun again for nothing: of a tenant's jobs the one that waits comes after it.
TEST_F(ScheduleTest, ASliceEndsForNoneThatComesAfter) {
  std::mutex mutex;
  std::vector<int64_t> begun;
  on_search_ = [&](const searcher::Setup& setup) {
    const std::lock_guard lock(mutex);
    begun.push_back(setup.job());
  };
  OpenWith([](EngineOptions& options) {
    options.max_searchers = 1;
    options.slice = absl::Seconds(10);
  });
  const std::string session = Register("host");
  v1::JobSpec spec = Endless();
  spec.set_priority(1);
  const std::string first = MustCreateFor("looms", spec);
  WorkFor(session, absl::Seconds(1));
  const std::string second = MustCreateFor("looms", Endless());
  WorkFor(session, absl::Seconds(35));
  {
    const std::lock_guard lock(mutex);
    EXPECT_THAT(begun, testing::ElementsAre(JobId(first)));
  }
  JobUpdate update;
  update.priority = 1;
  ASSERT_TRUE(Wait<v1::Job>([&](auto reply) {
                engine_->UpdateJob(Tenant("looms"), JobId(second), update, std::move(reply));
              }).ok());
  WorkFor(session, absl::Seconds(25));
  Close();  // no search begins any more
  EXPECT_THAT(begun, testing::Contains(JobId(second)));
}

// Fifty tenants, one searcher: the last is served as early as the first.
TEST_F(ScheduleTest, FiftyTenantsTakeTurns) {
  constexpr int kTenants = 50;
  OpenWith([](EngineOptions& options) {
    options.max_searchers = 1;
    options.slice = absl::Seconds(2);
  });
  const std::string session = Register("host");
  std::set<std::string> began;
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    MustCreateFor(absl::StrCat("tenant-", tenant), Endless());
  }
  std::map<std::string, int> turns;
  for (int second = 0; second < 4 * kTenants && began.size() < kTenants; ++second) {
    auto lease = Acquire(session, 1);
    ASSERT_TRUE(lease.ok()) << lease.status();
    for (int tries = 0; tries < 2000 && lease->id() == 0; ++tries) {
      Idle();
      lease = Acquire(session, 1);
    }
    if (lease->id() != 0) {
      began.insert(lease->job());
      ASSERT_TRUE(Report(ReportOf(session, *lease)).ok());
    }
    ASSERT_TRUE(Beat(session).ok());
    Advance(absl::Seconds(1));
  }
  EXPECT_EQ(began.size(), kTenants);
}

// Two searchers, one device: it is shared by tenants, not by jobs.
TEST_F(ScheduleTest, DevicesAreSharedByTenants) {
  OpenWith([](EngineOptions& options) {
    options.max_searchers = 4;
    options.slice = absl::Hours(1);
  });
  const std::string session = Register("host");
  for (int job = 0; job < 3; ++job) MustCreateFor("greedy", Endless());
  const std::string modest = MustCreateFor("modest", Endless());
  const auto measure = [&](const v1::Lease& lease) {
    ASSERT_NE(lease.id(), 0);
    Advance(absl::Seconds(1));
    ASSERT_TRUE(Report(ReportOf(session, lease)).ok());
    ASSERT_TRUE(Beat(session).ok());
  };
  // More wait than three jobs propose ahead. A share is of who waits: whose searcher is slow to
  // propose, on a busy machine, has none.
  const auto all_wait = [&] { return metrics_->ready_queue.Value() > 3 * kInFlightPerDevice; };
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (!all_wait() && absl::Now() < deadline) {
    Idle();
    // Of each job the default schedule is measured first, alone.
    auto lease = Acquire(session, 1);
    ASSERT_TRUE(lease.ok()) << lease.status();
    if (lease->id() != 0) measure(*lease);
  }
  int mine = 0;
  for (int turn = 0; turn < 60; ++turn) {
    while (!all_wait() && absl::Now() < deadline) Idle();
    ASSERT_TRUE(all_wait());
    const v1::Lease lease = MustAcquire(session, 1);
    measure(lease);
    mine += lease.job() == modest;
  }
  EXPECT_GE(mine, 26) << "its half would be 30, a quarter of the jobs 15";
  EXPECT_LE(mine, 34);
}

TEST_F(ScheduleTest, QuotasMakeJobsWait) {
  OpenWith([](EngineOptions& options) {
    options.max_searchers = 4;
    options.running_jobs_per_tenant = 2;
    options.device_seconds_per_day = 20;
    options.slice = absl::Seconds(5);
  });
  const std::string session = Register("host");
  for (int job = 0; job < 3; ++job) MustCreateFor("greedy", Endless());
  const auto running = [&]() -> size_t {
    EXPECT_TRUE(store_->WriteAndWait([](tuner::Records&) { return absl::OkStatus(); }).ok());
    auto reader = store_->Read();
    int64_t before = 0;
    v1::ListJobsRequest::Filter filter;
    filter.add_states(v1::Job::STATE_RUNNING);
    auto jobs = LoadJobs(*reader, "greedy", filter, false, before, 10);
    return jobs.ok() ? jobs->size() : 0;
  };
  Advance(absl::Seconds(1));
  EXPECT_EQ(running(), 2);
  for (int second = 0; second < 25; ++second) {
    const v1::Lease lease = second < 20 ? MustAcquire(session, 1) : v1::Lease();
    ASSERT_TRUE(Beat(session).ok());
    Advance(absl::Seconds(1));
    if (lease.id() != 0) {
      ASSERT_TRUE(Report(ReportOf(session, lease)).ok());
    }
  }
  for (int tries = 0; tries < 2000 && running() > 0; ++tries) {
    Advance(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(running(), 0) << "it has had its seconds";
  // What was used is known after a restart, and forgotten with the day.
  Advance(absl::Seconds(6));
  Restart();
  const std::string again = Register("host");
  EXPECT_EQ(running(), 0);
  now_ms_ += absl::ToInt64Milliseconds(absl::Hours(24));
  ASSERT_TRUE(Beat(again).ok());
  Advance(absl::Seconds(6));
  ASSERT_TRUE(Beat(again).ok());
  Advance(absl::Seconds(6));
  EXPECT_EQ(running(), 2);
}

}  // namespace
}  // namespace heddle::server
