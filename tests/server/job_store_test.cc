#include "server/db/job_store.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "base/sqlite.h"
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
    row.device = "host/cuda:0";
    ASSERT_TRUE(AddLateTrial(**records, row, absl::Now()).ok());
  }
  ASSERT_EQ(owed(), 2);
  ASSERT_TRUE(DropTrial(**records, 7).ok());
  EXPECT_EQ(owed(), 1);
}

}  // namespace
}  // namespace heddle::server
