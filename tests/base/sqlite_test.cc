#include "base/sqlite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kThree[] = "SELECT column1, column2 FROM (VALUES (3, 'c'), (1, 'a'), (2, 'b'))";

class SqliteTest : public testing::Test {
 protected:
  Database db_ = *Database::Open(":memory:", Database::Mode::kCreate);
};

TEST_F(SqliteTest, VisitsEachRow) {
  std::vector<std::string> seen;
  Cursor rows = db_.Query(kThree);
  EXPECT_TRUE(rows.ForEachRow([&] { seen.push_back(rows.Text(1)); }).ok());
  EXPECT_THAT(seen, ElementsAre("c", "a", "b"));
}

TEST_F(SqliteTest, AVisitThatFailsIsTheLast) {
  int seen = 0;
  Cursor rows = db_.Query(kThree);
  const absl::Status status = rows.ForEachRow([&] {
    ++seen;
    return rows.Int(0) == 1 ? absl::NotFoundError("mine") : absl::OkStatus();
  });
  EXPECT_EQ(status, absl::NotFoundError("mine"));
  EXPECT_EQ(seen, 2);
}

TEST_F(SqliteTest, AStatementThatFailsVisitsNothing) {
  Cursor rows = db_.Query("SELECT nothing FROM nowhere");
  EXPECT_FALSE(rows.ForEachRow([] { ADD_FAILURE() << "there is no row"; }).ok());
}

TEST_F(SqliteTest, IntegersOfAllRows) {
  EXPECT_THAT(*db_.QueryInts(kThree), ElementsAre(3, 1, 2));
  EXPECT_THAT(*db_.QueryInts("SELECT 1 WHERE ? > 1", 1), IsEmpty());
  EXPECT_FALSE(db_.QueryInts("SELECT nothing FROM nowhere").ok());
}

}  // namespace
}  // namespace heddle
