// What the server remembers, for how long, and how it is found again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <set>
#include <string>

#include "base/sqlite.h"
#include "base/status.h"
#include "search_space/notation/notation.h"
#include "server/db/trust/confirmations.h"
#include "tests/server/engine_support.h"

namespace heddle::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RetentionTest : public EngineTest {
 protected:
  int64_t Int(const std::string& query) {
    auto reader = store_->Read();
    auto value = reader->database().QueryInt(query);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.value_or(-1);
  }
  // What ListJobs gives, over pages of `size`.
  std::vector<std::string> List(const v1::ListJobsRequest::Filter& filter, int size = 2,
                                const std::string& tenant = "weavers") {
    std::vector<std::string> names;
    int64_t before = 0;
    do {
      auto jobs = LoadJobs(*store_->Read(), tenant, filter, false, before, size);
      EXPECT_TRUE(jobs.ok()) << jobs.status();
      if (!jobs.ok()) break;
      for (const v1::Job& job : *jobs) names.push_back(job.name());
    } while (before > 0);
    return names;
  }
};

// Three searchers that die in a row fail their job, also where the server ends between them.
TEST_F(RetentionTest, LostSearchersAreCountedAcrossRestarts) {
  std::atomic<int> searches = 0;
  configure_ = [&](EngineOptions& engine) {
    engine.search = [&](const searcher::Setup& setup,
                        const SearchPort& port) -> absl::StatusOr<searcher::Done> {
      if (++searches != 2) return absl::UnavailableError("a searcher ended: signal 9");
      return Search(setup, port);  // waits for results that nobody measures
    };
  };
  Restart();
  const std::string job = MustCreate(MatmulSpec(4));
  Register("host");
  for (int i = 0; i < 20000 && searches < 2; ++i) Idle();
  ASSERT_EQ(searches, 2);
  ASSERT_TRUE(store_->WriteAndWait([](auto&) { return absl::OkStatus(); }).ok());
  EXPECT_EQ(Int("SELECT restarts FROM job"), 1);
  Close();
  {
    // What a server leaves that was killed.
    auto database = Database::Open(path_, Database::Mode::kReadWrite);
    ASSERT_TRUE(database->Run("UPDATE job SET restarts = 2").ok());
  }
  Open();
  Register("host");
  EXPECT_TRUE(AwaitState(job, v1::Job::STATE_FAILED));
  EXPECT_THAT(Get(job).error(), HasSubstr("signal 9"));
  EXPECT_EQ(searches, 3);
}

TEST_F(RetentionTest, AResultEndsTheCountOfLostSearchers) {
  const std::string job = MustCreate(MatmulSpec(4));
  Close();
  {
    auto database = Database::Open(path_, Database::Mode::kReadWrite);
    ASSERT_TRUE(database->Run("UPDATE job SET restarts = 2").ok());
  }
  Open();
  Work(Register("host"), job);
  EXPECT_EQ(Int("SELECT restarts FROM job"), 0);
}

TEST_F(RetentionTest, JobsThatEndedLongAgoAreForgottenAndTheirRecordsStay) {
  const std::string job = MustCreate(MatmulSpec(4));
  Work(Register("host"), job);
  const int64_t records = CountRecords();
  ASSERT_GT(records, 0);
  jump_hours_ = 24 * 89;
  Advance(absl::Hours(2));
  const std::string open = MustCreate(MatmulSpec(4, 128));
  EXPECT_EQ(Get(job).name(), job);
  jump_hours_ = 24 * 91;
  Advance(absl::Hours(2));
  ASSERT_TRUE(store_->WriteAndWait([](auto&) { return absl::OkStatus(); }).ok());
  EXPECT_EQ(LoadJob(*store_->Read(), JobId(job), "").status().code(), absl::StatusCode::kNotFound);
  for (const char* table : {"job_event", "job_workload", "job_trial", "job_label"}) {
    EXPECT_EQ(Int(absl::StrCat("SELECT count(*) FROM ", table, " WHERE job = ", JobId(job))), 0)
        << table;
  }
  EXPECT_EQ(CountRecords(), records);
  EXPECT_EQ(Get(open).name(), open) << "it has not ended";
}

// However many there are, a write forgets few of them.
TEST_F(RetentionTest, ManyJobsAreForgottenOneAfterTheOther) {
  configure_ = [](EngineOptions& engine) { engine.open_jobs_per_tenant = 100; };
  Restart();
  for (int i = 0; i < 11; ++i) MustCreate(MatmulSpec(4));
  ASSERT_TRUE(store_
                  ->WriteAndWait([](tuner::Records& records) {
                    return records.database().Run("UPDATE job SET end_us = 1, state = ?",
                                                  int{v1::Job::STATE_SUCCEEDED});
                  })
                  .ok());
  Restart();
  for (int i = 0; i < 10; ++i) {
    Advance(absl::Seconds(1));
    ASSERT_TRUE(store_->WriteAndWait([](auto&) { return absl::OkStatus(); }).ok());
  }
  EXPECT_EQ(Int("SELECT count(*) FROM job"), 0);
}

// A tenant's jobs take no more of the disk than so many.
TEST_F(RetentionTest, OfATenantsJobsThatHaveEndedTheOldestAreForgotten) {
  configure_ = [](EngineOptions& engine) {
    engine.ended_jobs_per_tenant = 3;
    engine.open_jobs_per_tenant = 100;
  };
  Restart();
  std::vector<std::string> jobs;
  for (int i = 0; i < 6; ++i) jobs.push_back(MustCreate(MatmulSpec(4)));
  auto others = Create(MatmulSpec(4), "theirs", "spinners");
  ASSERT_TRUE(others.ok()) << others.status();
  Advance(absl::Hours(2));
  // All have ended when they began, but the first, which has gone on until now.
  ASSERT_TRUE(store_
                  ->WriteAndWait([&](tuner::Records& records) -> absl::Status {
                    Database& db = records.database();
                    HEDDLE_RETURN_IF_ERROR(db.Run(
                        "UPDATE job SET end_us = create_us, state = CASE id % 3 WHEN 0 THEN ? "
                        "WHEN 1 THEN ? ELSE ? END",
                        int{v1::Job::STATE_SUCCEEDED}, int{v1::Job::STATE_FAILED},
                        int{v1::Job::STATE_CANCELLED}));
                    HEDDLE_RETURN_IF_ERROR(
                        db.Run("UPDATE job_event SET when_us = (SELECT create_us FROM job WHERE "
                               "id = job_event.job)"));
                    return AppendEvent(db, JobId(jobs[0]), v1::Job::STATE_SUCCEEDED, 0,
                                       absl::UnixEpoch() + absl::Milliseconds(now_ms_.load()))
                        .status();
                  })
                  .ok());
  const auto expect_left = [&](std::set<size_t> left) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(LoadJob(*store_->Read(), JobId(jobs[i]), "").ok(), left.contains(i)) << i;
    }
  };
  MustCreate(MatmulSpec(4));
  expect_left({0, 3, 4, 5});
  MustCreate(MatmulSpec(4));
  expect_left({0, 4, 5});
  MustCreate(MatmulSpec(4));
  expect_left({0, 4, 5});
  EXPECT_EQ(Int(absl::StrCat("SELECT count(*) FROM job_workload WHERE job = ", JobId(jobs[1]))), 0);
  EXPECT_EQ(Get(others->name()).name(), others->name()) << "of another tenant";
}

TEST_F(RetentionTest, DevicesThatAreGoneAreForgottenUnlessTakenOutOfService) {
  Register("gone");
  Register("drained");
  for (const v1::FleetDevice& device : engine_->Devices()) {
    if (device.name().find("drained") == std::string::npos) continue;
    v1::SetDeviceStateRequest request;
    request.set_name(device.name());
    request.set_state(v1::FleetDevice::STATE_DRAINING);
    ASSERT_TRUE(Wait<v1::FleetDevice>([&](auto reply) {
                  engine_->SetDeviceState(As(0), request, std::move(reply));
                }).ok());
  }
  // Sessions end after an hour of silence.
  Advance(absl::Hours(2));
  Register("here");
  jump_hours_ = 24 * 31;
  Advance(absl::Minutes(59));
  EXPECT_EQ(engine_->Devices().size(), 3U);
  Advance(absl::Minutes(1));
  ASSERT_TRUE(store_->WriteAndWait([](auto&) { return absl::OkStatus(); }).ok());
  const auto left = [&] {
    std::set<std::string> hosts;
    for (const v1::FleetDevice& device : engine_->Devices()) {
      hosts.insert(HostOf(device.name()));
    }
    return hosts;
  };
  EXPECT_THAT(left(), ElementsAre("drained", "here"));
  Restart();
  EXPECT_THAT(left(), ElementsAre("drained", "here"));
}

TEST_F(RetentionTest, JobsAreFoundByLabelAndState) {
  configure_ = [](EngineOptions& engine) { engine.open_jobs_per_tenant = 100; };
  Restart();
  std::vector<std::string> looms, both;
  for (int i = 0; i < 9; ++i) {
    v1::JobSpec spec = MatmulSpec(4);
    if (i % 3 != 0) (*spec.mutable_labels())["team"] = "looms";
    if (i % 2 != 0) (*spec.mutable_labels())["night"] = "";
    const std::string name = MustCreate(spec);
    if (i % 3 != 0) looms.insert(looms.begin(), name);
    if (i % 3 != 0 && i % 2 != 0) both.insert(both.begin(), name);
  }
  ASSERT_TRUE(store_
                  ->WriteAndWait([](tuner::Records& records) {
                    return records.database().Run("UPDATE job SET state = ?",
                                                  int{v1::Job::STATE_RUNNING});
                  })
                  .ok());
  v1::ListJobsRequest::Filter filter;
  EXPECT_EQ(List(filter).size(), 9U);
  EXPECT_EQ(List(filter, 2, "").size(), 9U);
  EXPECT_THAT(List(filter, 2, "others"), IsEmpty());
  (*filter.mutable_labels())["team"] = "looms";
  EXPECT_EQ(List(filter), looms);
  EXPECT_EQ(List(filter, 2, ""), looms);
  filter.add_states(v1::Job::STATE_QUEUED);
  EXPECT_THAT(List(filter), IsEmpty());
  filter.add_states(v1::Job::STATE_RUNNING);
  EXPECT_EQ(List(filter), looms);
  (*filter.mutable_labels())["night"] = "";
  EXPECT_EQ(List(filter), both);
  (*filter.mutable_labels())["night"] = "x";
  EXPECT_THAT(List(filter), IsEmpty());
}

// A specification is not read to find out that its job is not asked for: the ids come from indices.
TEST_F(RetentionTest, AFilterReadsNoSpecification) {
  std::vector<std::string> statements;
  auto reader = store_->Read();
  sqlite3* handle = reader->database().handle();
  sqlite3_trace_v2(
      handle, SQLITE_TRACE_STMT,
      [](unsigned, void* into, void* statement, void*) {
        char* sql = sqlite3_expanded_sql(static_cast<sqlite3_stmt*>(statement));
        static_cast<std::vector<std::string>*>(into)->emplace_back(sql);
        sqlite3_free(sql);
        return 0;
      },
      &statements);
  v1::ListJobsRequest::Filter filter;
  filter.add_states(v1::Job::STATE_FAILED);
  (*filter.mutable_labels())["team"] = "looms";
  for (const char* tenant : {"weavers", ""}) {
    int64_t before = 0;
    ASSERT_TRUE(LoadJobs(*reader, tenant, filter, false, before, 10).ok());
  }
  sqlite3_trace_v2(handle, 0, nullptr, nullptr);
  ASSERT_EQ(statements.size(), 2U);
  for (const std::string& sql : statements) {
    Cursor plan = reader->database().Query("EXPLAIN QUERY PLAN " + sql);
    std::string text;
    while (*plan.Next()) text += plan.Text(3) + "\n";
    EXPECT_THAT(text, HasSubstr("j USING COVERING INDEX job_state")) << sql;
  }
}

// Whoever has given up a read does not keep its connection to the end.
TEST_F(RetentionTest, AReadThatIsGivenUpEnds) {
  std::atomic<int> asked = 0;
  {
    auto reader = store_->Read([&] { return ++asked >= 3; });
    const auto endless = reader->database().QueryInt(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c");
    EXPECT_EQ(endless.status().code(), absl::StatusCode::kCancelled) << endless.status();
  }
  EXPECT_EQ(asked, 3);
  // All connections work on, unasked.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Int("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000) "
                  "SELECT count(*) FROM c"),
              100000);
  }
  EXPECT_EQ(asked, 3);
}

// What a node has measured for the database's owner is another host's word on what a daemon claims.
TEST_F(RetentionTest, ACollectedFinalConfirms) {
  const std::string job = MustCreate(MatmulSpec(1));
  Work(Register("host", 1), job);
  const auto program = search_space::ParseWorkload(Get(job).workloads(0).workload().text());
  ASSERT_TRUE(program.ok());
  const auto served = [&] {
    auto found = FindServed(*store_->Read(), *program, {Get(job).device_model()}, true,
                            [](const std::string&) { return false; });
    EXPECT_TRUE(found.ok() && found->has_value()) << found.status();
    return **found;
  };
  const Served before = served();
  EXPECT_FALSE(before.validated);
  // The daemon's claim is the newest again, so that it is what would be served.
  const auto add = [&](double collected) {
    return store_->WriteAndWait([&](tuner::Records& records) -> absl::Status {
      tuner::TrialRecord trial = before.best.trial;
      trial.result.time_us *= collected;
      trial.from = {"", 0, "node-7", "suite-1"};
      if (auto id = records.AddTrial(*program, before.best.environment, trial); !id.ok()) {
        return id.status();
      }
      auto id = records.AddTrial(*program, before.best.environment, before.best.trial);
      return id.ok() ? AddOrigin(records, *id, {.host = "host", .token = 1}) : id.status();
    });
  };
  ASSERT_TRUE(add(1.5).ok());
  EXPECT_EQ(served().confirmations, 0) << "they do not agree";
  ASSERT_TRUE(add(1.05).ok());
  EXPECT_EQ(served().best.trial.from.host, "host");
  EXPECT_EQ(served().confirmations, 1);
  EXPECT_TRUE(served().validated);
}

}  // namespace
}  // namespace heddle::server
