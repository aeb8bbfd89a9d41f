// Migrations: a database is of its old version or of the new one, never between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "tests/tuner/records_support.h"
#include "tuner/records_schema.h"

namespace heddle::tuner {
namespace {

class MigrationFaultTest : public RecordsFixture {
 protected:
  // A database as the first version left it, with a trial in it.
  void MakeFirstVersion() {
    auto database = Database::Open(path_, Database::Mode::kCreate);
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE(database->Run("PRAGMA journal_mode = WAL").ok());
    ASSERT_TRUE(Migrate(*database, {Migrations().front()}).ok());
    auto records = MakeRecords(*std::move(database), false, "");
    Add(*records, Final(3));
  }
};

TEST_F(MigrationFaultTest, AnOldDatabaseKeepsItsTrials) {
  MakeFirstVersion();
  auto records = MustOpen();
  EXPECT_EQ(BestTime(*records), 3);
  EXPECT_EQ(Query("PRAGMA user_version"), std::to_string(Migrations().size()));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".v1.bak"));
}

TEST_F(MigrationFaultTest, KilledInTheMiddle) {
  MakeFirstVersion();
  const pid_t child = fork();
  if (child == 0) {
    auto database = Database::Open(path_, Database::Mode::kReadWrite);
    std::vector<std::string> migrations = Migrations();
    // One that makes a table and then takes for ever.
    migrations.push_back(
        "CREATE TABLE half_way (x INTEGER) STRICT; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL "
        "SELECT x + 1 FROM c) SELECT count(*) FROM c");
    Migrate(*database, migrations).IgnoreError();
    _exit(0);
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!std::filesystem::exists(path_ + ".v1.bak") && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  absl::SleepFor(absl::Milliseconds(200));
  kill(child, SIGKILL);
  EXPECT_EQ(ExitCode(child), 1000 + SIGKILL);
  EXPECT_EQ(Query("PRAGMA user_version"), "1");
  EXPECT_EQ(Query("SELECT count(*) FROM sqlite_schema WHERE name IN ('half_way', 'job')"), "0");
  // The next start migrates as if nothing had been.
  auto records = MustOpen();
  EXPECT_EQ(BestTime(*records), 3);
  EXPECT_EQ(Query("PRAGMA user_version"), std::to_string(Migrations().size()));
}

TEST_F(MigrationFaultTest, ANewerDatabaseIsRefused) {
  MakeFirstVersion();
  Query("PRAGMA user_version = 1000");
  auto records = Records::Open(path_);
  EXPECT_EQ(records.status().code(), absl::StatusCode::kFailedPrecondition) << records.status();
  EXPECT_EQ(Query("PRAGMA user_version"), "1000");
}

}  // namespace
}  // namespace heddle::tuner
