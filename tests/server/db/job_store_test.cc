#include <gtest/gtest.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "base/sqlite.h"
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

}  // namespace
}  // namespace heddle::server
