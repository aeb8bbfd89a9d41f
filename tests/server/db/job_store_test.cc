#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sqlite.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/trial_store.h"
#include "tests/process.h"
#include "tuner/records/records.h"

namespace heddle::server {
namespace {

// The number of a dropped trial may be given to another candidate after a restart.
TEST(JobStoreTest, ADroppedTrialIsOwedByNoLease) {
  const tests::TempFolder folder;
  auto records = tuner::Records::Open(folder / "heddle.db");
  ASSERT_TRUE(records.ok()) << records.status();
  const auto owed = [&] {
    return *(*records)->database().QueryInt("SELECT count(*) FROM late_trial");
  };
  for (const int64_t id : {7, 8}) {
    TrialRow row;
    row.id = id;
    row.lease = 5;
    row.device = "hosts/host/devices/cuda:0";
    ASSERT_TRUE(AddLateTrial(**records, row, absl::Now()).ok());
  }
  ASSERT_EQ(owed(), 2);
  ASSERT_TRUE(DropTrial(**records, 7).ok());
  EXPECT_EQ(owed(), 1);
}

// Nobody learns from a name how many jobs others have.
TEST(JobStoreTest, NamesOfJobsGrowAndLeaveGaps) {
  const tests::TempFolder folder;
  auto records = tuner::Records::Open(folder / "heddle.db");
  ASSERT_TRUE(records.ok()) << records.status();
  const absl::Time now = absl::Now();
  int64_t last = 0;
  int64_t widest = 0;
  // The clock may stand still, or go back.
  for (const int seconds : {0, 0, 1, -3600, 2}) {
    auto id = InsertJob(**records, "weavers", {}, {}, now + absl::Seconds(seconds));
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_GT(*id, last);
    EXPECT_EQ(JobId(JobName(*id)), *id);
    if (last > 0) widest = std::max(widest, *id - last);
    last = *id;
  }
  EXPECT_GT(widest, 1000000);
}

// Whenever its run's trials come home, also when it has ended; as far as the node's clock can be
// true.
TEST(JobStoreTest, AClustersJobHasStartedWithItsFirstTrial) {
  const tests::TempFolder folder;
  auto opened = tuner::Records::Open(folder / "heddle.db");
  ASSERT_TRUE(opened.ok()) << opened.status();
  tuner::Records& records = **opened;
  search_space::TensorProgram program;
  program.canonical_text = "float32 op vector_add(n = 8) {}";
  program.hash = "0123456789abcdef";
  const auto workload = std::make_shared<const search_space::TensorProgram>(program);
  const auto second = [](int64_t s) { return absl::FromUnixSeconds(1000000 + s); };
  const auto id = InsertJob(records, "weavers", {}, {workload}, second(0));
  ASSERT_TRUE(id.ok()) << id.status();
  int64_t sequence = 0;
  const auto collect = [&](int64_t done_s) {
    tuner::TrialRecord trial;
    trial.point = absl::StrCat("tile: ", ++sequence);
    trial.when = second(done_s);
    trial.result.compile_s = 3;
    trial.result.time_s = 1;
    auto added = records.AddTrial(program, {.device_name = "Loom 9000"}, trial);
    ASSERT_TRUE(added.ok()) << added.status();
    Database& db = records.database();
    ASSERT_TRUE(db.Run("INSERT OR IGNORE INTO attempt (id, run, number) VALUES (1, 'r', 0)").ok());
    ASSERT_TRUE(db.Run("INSERT INTO collected (attempt, sequence, trial) VALUES (1, ?, ?)",
                       sequence, *added)
                    .ok());
    ASSERT_TRUE(CountRuns(records, *id, "Loom 9000", {{0, "r", true}}).ok());
  };
  const auto started = [&] {
    return absl::ToUnixSeconds(TimeOf(LoadJob(records, *id, "")->start_time())) - 1000000;
  };
  const auto set_state = [&](v1::Job::State state, int64_t at) {
    ASSERT_TRUE(SetState(records, *id, state, {}, "", "", second(at)).ok());
  };
  collect(60);
  EXPECT_EQ(started(), 56);
  EXPECT_EQ(LoadJob(records, *id, "")->device_model(), "Loom 9000");
  set_state(v1::Job::STATE_RUNNING, 70);
  collect(65);
  EXPECT_EQ(started(), 56);
  collect(34);
  EXPECT_EQ(started(), 30);
  set_state(v1::Job::STATE_CANCELLED, 80);
  collect(2);
  EXPECT_EQ(started(), 0) << "before it was created";
  EXPECT_EQ(LoadJob(records, *id, "")->workloads(0).trials(), 4);
}

// What keeps a job that is open from going on is its error until it runs or ends.
TEST(JobStoreTest, AnObstacleStaysUntilItIsGone) {
  const tests::TempFolder folder;
  auto opened = tuner::Records::Open(folder / "heddle.db");
  ASSERT_TRUE(opened.ok()) << opened.status();
  tuner::Records& records = **opened;
  v1::JobSpec spec;
  spec.mutable_budget()->set_trials(2);
  const absl::Time now = absl::Now();
  const auto id = InsertJob(records, "weavers", spec, {}, now);
  ASSERT_TRUE(id.ok()) << id.status();
  const auto error = [&] { return LoadJob(records, *id, "")->error(); };
  const auto set_state = [&](v1::Job::State state) {
    ASSERT_TRUE(SetState(records, *id, state, {}, "", "", now).ok());
  };
  ASSERT_TRUE(SetObstacle(records, *id, "Invalid account").ok());
  set_state(v1::Job::STATE_WAITING_DEVICE);
  EXPECT_EQ(error(), "Invalid account");
  EXPECT_TRUE(LoadOpenJobs(records)->at(0).has_spec());
  set_state(v1::Job::STATE_RUNNING);
  EXPECT_EQ(error(), "");
  set_state(v1::Job::STATE_SUCCEEDED);
  ASSERT_TRUE(SetObstacle(records, *id, "late").ok());
  EXPECT_EQ(error(), "");
}

}  // namespace
}  // namespace heddle::server
