// What a migration that the next version brings may meet.
#include "tuner/records/database/records_schema.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/tuner/records_support.h"

namespace heddle::tuner {
namespace {

class RecordsSchemaTest : public RecordsFixture {
 protected:
  static std::vector<std::string> WithNext(const std::string& next) {
    std::vector<std::string> migrations = Migrations();
    migrations.push_back(next);
    return migrations;
  }
  absl::Status MigrateTo(const std::vector<std::string>& migrations) {
    auto database = Database::Open(path_, Database::Mode::kReadWrite);
    return database.ok() ? Migrate(*database, migrations) : database.status();
  }
};

TEST_F(RecordsSchemaTest, MigratesAfterABackup) {
  Add(*MustOpen(), Final(3));
  ASSERT_TRUE(MigrateTo(WithNext("ALTER TABLE trial ADD COLUMN note TEXT")).ok());
  EXPECT_EQ(Query("PRAGMA user_version"), absl::StrCat(Migrations().size() + 1));
  EXPECT_EQ(Query("SELECT count(note IS NULL) FROM trial"), "1");
  path_ += absl::StrCat(".v", Migrations().size(), ".bak");
  EXPECT_EQ(BestTime(*MustOpen()), 3);
}

TEST_F(RecordsSchemaTest, AMigrationThatFailsLeavesTheOldVersion) {
  Add(*MustOpen(), Final(3));
  const absl::Status status =
      MigrateTo(WithNext("ALTER TABLE trial ADD COLUMN note TEXT; DROP TABLE no_such_table"));
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(Query("SELECT count(*) FROM pragma_table_info('trial') WHERE name = 'note'"), "0");
  EXPECT_EQ(BestTime(*MustOpen()), 3);
}

TEST_F(RecordsSchemaTest, AProcessKilledInAMigrationLeavesTheOldVersion) {
  Add(*MustOpen(), Final(3));
  const pid_t child = fork();
  if (child == 0) {
    auto database = Database::Open(path_, Database::Mode::kReadWrite);
    // The statement after the change ends the process.
    sqlite3_create_function(
        database->handle(), "die", 0, SQLITE_UTF8, nullptr,
        [](sqlite3_context*, int, sqlite3_value**) { raise(SIGKILL); }, nullptr, nullptr);
    (void)Migrate(*database, WithNext("ALTER TABLE trial ADD COLUMN note TEXT; SELECT die()"));
    _exit(1);
  }
  EXPECT_EQ(ExitCode(child), 1000 + SIGKILL);
  auto records = MustOpen();
  EXPECT_EQ(records->damage(), "");
  EXPECT_EQ(BestTime(*records), 3);
  EXPECT_EQ(Query("SELECT count(*) FROM pragma_table_info('trial') WHERE name = 'note'"), "0");
}

TEST_F(RecordsSchemaTest, TwoProcessesThatMigrateAtOnceDoItOnce) {
  Add(*MustOpen(), Final(3));
  const auto migrations = WithNext("ALTER TABLE trial ADD COLUMN note TEXT");
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(fork());
    if (children.back() == 0) _exit(MigrateTo(migrations).ok() ? 0 : 1);
  }
  for (pid_t child : children) EXPECT_EQ(ExitCode(child), 0);
  path_ += absl::StrCat(".v", Migrations().size(), ".bak");
  EXPECT_EQ(Query("PRAGMA user_version"), absl::StrCat(Migrations().size())) << "the backup is old";
}

}  // namespace
}  // namespace heddle::tuner
