// A database of an earlier version with jobs that are open, and what is known of who measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/sqlite.h"
#include "tests/server/engine_support.h"
#include "tests/support.h"
#include "tuner/records/database/records_schema.h"

namespace heddle::server {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

class UpgradeTest : public EngineTest {
 protected:
  // The database as the file in tests/golden/database left it.
  void StartFrom(const std::string& golden) {
    Close();
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
    std::ifstream file(absl::StrCat(tests::SourceDir(), "/tests/golden/database/", golden));
    ASSERT_TRUE(file) << golden;
    std::stringstream sql;
    sql << file.rdbuf();
    {
      auto database = Database::Open(path_, Database::Mode::kCreate);
      ASSERT_TRUE(database.ok()) << database.status();
      ASSERT_EQ(database->Script(sql.str()), absl::OkStatus());
    }
    Open();
  }
  int64_t Int(const std::string& query) {
    auto reader = store_->Read();
    auto value = reader->database().QueryInt(query);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.value_or(-1);
  }
};

TEST_F(UpgradeTest, OpenJobsOfAnEarlierVersionGoOn) {
  StartFrom("open_jobs_v4.sql");
  // It waits for a device, or is about to.
  EXPECT_THAT(Get(JobName(1)).state(),
              AnyOf(v1::Job::STATE_QUEUED, v1::Job::STATE_RUNNING, v1::Job::STATE_WAITING_DEVICE))
      << Get(JobName(1)).error();
  const std::string session = Register("host");
  // What the daemon measured meanwhile is reported under the lease that it got before.
  v1::ReportRequest report;
  report.set_session(session);
  report.set_lease((int64_t{5} << 32) + 1);
  v1::Candidate candidate;
  candidate.set_id(7);
  *report.add_results() = ResultOf(candidate);
  auto reported = Report(report);
  ASSERT_TRUE(reported.ok()) << reported.status();
  EXPECT_THAT(reported->committed(), ElementsAre(7));
  EXPECT_EQ(Get(JobName(1)).workloads(0).trials(), 1);

  Work(session, JobName(1));
  EXPECT_EQ(Get(JobName(1)).state(), v1::Job::STATE_SUCCEEDED) << Get(JobName(1)).error();
  // The one that had cost a worker already kept that mark.
  for (const v1::Trial& trial : Trials(JobName(1))) {
    if (TrialId(trial.name()) != 8) continue;
    EXPECT_EQ(trial.kills(), 1);
  }
  EXPECT_TRUE(AwaitState(JobName(2), v1::Job::STATE_CANCELLED));
  Work(session, JobName(3));
  EXPECT_EQ(Get(JobName(3)).state(), v1::Job::STATE_SUCCEEDED) << Get(JobName(3)).error();
}

// Labels were looked for in each job's specification once, and devices had other names.
TEST_F(UpgradeTest, JobsOfAnEarlierVersionAreFoundByTheirLabels) {
  Close();
  std::filesystem::remove(path_);
  const std::vector<std::string>& all = tuner::Migrations();
  {
    auto database = Database::Open(path_, Database::Mode::kCreate);
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE(tuner::Migrate(*database, {all.begin(), all.begin() + 7}).ok());
    // Jobs that ended long ago would be forgotten while this looks for them.
    const int64_t now = absl::ToUnixMicros(absl::Now());
    int id = 0;
    for (const char* spec :
         {R"({"labels":{"team":"looms","night":""},"budget":{"trials":"1"},)"
          R"("device":{"device":"host/GPU-1"}})",
          R"({"labels":{"team":"threads"}})", "{}", "what no version has ever written"}) {
      ASSERT_TRUE(database
                      ->Run("INSERT INTO job VALUES (?, 'weavers', ?, 5, 0, '', '', 1, 1, ?, 0, 0)",
                            ++id, std::string(spec), now)
                      .ok());
    }
  }
  Open();
  v1::ListJobsRequest::Filter filter;
  (*filter.mutable_labels())["team"] = "looms";
  int64_t before = 0;
  auto jobs = LoadJobs(*store_->Read(), "weavers", filter, false, before, 10);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 1U);
  EXPECT_EQ(jobs->front().name(), JobName(1));
  EXPECT_EQ(jobs->front().spec().device().device(), "hosts/host/devices/GPU-1");
  EXPECT_EQ(Int("SELECT count(*) FROM job_label"), 3);
}

// The way back is the copy that the upgrade made; the earlier program says so of the new file.
TEST_F(UpgradeTest, AnEarlierProgramRefusesTheUpgradedDatabaseAndTakesTheCopy) {
  StartFrom("open_jobs_v4.sql");
  Close();
  const std::vector<std::string>& all = tuner::Migrations();
  const std::vector<std::string> earlier(all.begin(), all.begin() + 4);
  {
    auto upgraded = Database::Open(path_, Database::Mode::kReadWrite);
    ASSERT_TRUE(upgraded.ok()) << upgraded.status();
    const absl::Status refused = tuner::Migrate(*upgraded, earlier);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("install the newer heddle"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("1 to 4"));
    auto version = upgraded->QueryInt("PRAGMA user_version");
    EXPECT_EQ(version.value_or(-1), static_cast<int64_t>(all.size())) << "nothing was changed";
  }
  auto copy = Database::Open(path_ + ".v4.bak", Database::Mode::kReadWrite);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(tuner::Migrate(*copy, earlier), absl::OkStatus());
  EXPECT_EQ(copy->QueryInt("SELECT count(*) FROM job WHERE end_us = 0").value_or(-1), 3);
}

// A candidate that has cost its workers is recorded by the server: as measured by whom?
TEST_F(UpgradeTest, ARecordNamesTheTokenOfItsHostAlsoAfterARestart) {
  for (const bool restarts : {false, true}) {
    const std::string job = MustCreate(MatmulSpec(4));
    std::string session = Register("host", 7);
    int64_t lost = 0;
    for (int kills = 0; kills < kMaxKills; ++kills) {
      v1::Lease lease = MustAcquire(session, 1);
      for (int i = 0; i < 100 && lost != 0 && lease.candidates(0).id() != lost; ++i) {
        ASSERT_TRUE(Report(ReportOf(session, lease)).ok());
        lease = MustAcquire(session, 1);
      }
      lost = lease.candidates(0).id();
      if (restarts) {
        Restart();
        session = Register("host", 7);
      }
      v1::ReportRequest report;
      report.set_session(session);
      report.set_lease(lease.id());
      *report.add_results() = ResultOf(lease.candidates(0), v1::OUTCOME_WORKER_LOST);
      auto reported = Report(report);
      ASSERT_TRUE(reported.ok()) << reported.status();
    }
    Work(session, job);
    EXPECT_EQ(Int(absl::StrCat("SELECT state FROM job_trial WHERE id = ", lost)),
              int{v1::Trial::STATE_QUARANTINED});
    EXPECT_EQ(Int(absl::StrCat("SELECT s.token FROM job_trial j JOIN trial t ON t.id = j.record "
                               "JOIN source s ON s.id = t.source WHERE j.id = ",
                               lost)),
              7)
        << (restarts ? "restarted" : "not restarted");
  }
}

}  // namespace
}  // namespace heddle::server
