// Migrations: a database is of its old version or of the new one, never between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "tests/support.h"
#include "tests/tuner/records_support.h"
#include "tuner/records/database/records_schema.h"

namespace heddle::tuner {
namespace {

// tests/golden/database: a file as each version left it. A new version brings its own.
std::string GoldenDatabase(size_t version) {
  std::ifstream file(absl::StrCat(tests::SourceDir(), "/tests/golden/database/v", version, ".sql"));
  EXPECT_TRUE(file) << "no golden database of schema version " << version;
  std::stringstream sql;
  sql << file.rdbuf();
  return sql.str();
}

class MigrationFaultTest : public RecordsFixture {
 protected:
  // A database as the first version left it, with trials in it.
  void MakeFirstVersion() { Query(absl::StrCat("PRAGMA journal_mode = WAL; ", GoldenDatabase(1))); }
};

TEST_F(MigrationFaultTest, AnOldDatabaseKeepsItsTrials) {
  MakeFirstVersion();
  auto records = MustOpen();
  EXPECT_EQ(BestTime(*records), 2);
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
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
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
  EXPECT_EQ(BestTime(*records), 2);
  EXPECT_EQ(Query("PRAGMA user_version"), std::to_string(Migrations().size()));
}

TEST_F(MigrationFaultTest, ANewerDatabaseIsRefused) {
  MakeFirstVersion();
  Query("PRAGMA user_version = 1000");
  auto records = Records::Open(path_);
  EXPECT_EQ(records.status().code(), absl::StatusCode::kFailedPrecondition) << records.status();
  EXPECT_EQ(Query("PRAGMA user_version"), "1000");
}

class GoldenDatabaseTest : public RecordsFixture, public testing::WithParamInterface<size_t> {
 protected:
  // A statement that gives every row of each table as text, by the table's name. How many hosts
  // confirm what is served was a column once, and is counted now where it is asked.
  std::map<std::string, std::string> Selects() {
    std::map<std::string, std::string> selects;
    std::stringstream tables(
        Query("SELECT name || ' ' FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE "
              "'sqlite_%'"));
    for (std::string table; tables >> table;) {
      selects[table] = absl::StrCat(
          "SELECT ",
          Query(absl::StrCat("SELECT group_concat('quote(' || name || ')', ' || '','' || ') "
                             "FROM pragma_table_info('",
                             table, "') WHERE name <> 'confirmations'")),
          " || char(10) FROM ", table, " ORDER BY 1");
    }
    return selects;
  }
};

TEST_P(GoldenDatabaseTest, OpensAndKeepsEveryRow) {
  Query(GoldenDatabase(GetParam()));
  ASSERT_EQ(Query("PRAGMA user_version"), std::to_string(GetParam()));
  const std::map<std::string, std::string> selects = Selects();
  ASSERT_FALSE(selects.empty());
  std::map<std::string, std::string> rows;
  for (const auto& [table, select] : selects) {
    // Devices were known as HOST/DEVICE once.
    rows[table] = absl::StrReplaceAll(
        Query(select), {{"'host/", "'hosts/host/devices/"}, {"'other/", "'hosts/other/devices/"}});
    EXPECT_NE(rows[table], "") << table << " is empty: nothing to lose";
  }
  MustOpen().reset();
  EXPECT_EQ(Query("PRAGMA user_version"), std::to_string(Migrations().size()));
  for (const auto& [table, select] : selects) EXPECT_EQ(Query(select), rows[table]) << table;
  EXPECT_EQ(Query("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(Query("PRAGMA foreign_key_check"), "");
  // What is read with its checksum is read as it was written, and goes on.
  auto records = MustOpen();
  EXPECT_EQ(BestTime(*records), 2);
  auto trials = records->Trials(program_, environment_);
  ASSERT_TRUE(trials.ok()) << trials.status();
  EXPECT_EQ(trials->size(), 4U);
  Add(*records, Final(1));
  EXPECT_EQ(BestTime(*records), 1);
}

INSTANTIATE_TEST_SUITE_P(Versions, GoldenDatabaseTest,
                         testing::Range<size_t>(1, Migrations().size() + 1));

}  // namespace
}  // namespace heddle::tuner
