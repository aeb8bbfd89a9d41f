// Which schedules another host is asked to measure, and beside which, whatever comes between.
#include "server/fleet/leases/confirmations.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "proto/values.h"
#include "search_space/ir/tensor_program.h"
#include "tests/server/fleet/fleet_events.h"

namespace heddle::server {
namespace {

TEST_F(FleetEventsTest, AConfirmationWhoseLeaseIsNotWrittenIsAskedForAgain) {
  MeasureFinals();
  Register(2);
  for (int attempt = 0; attempt < 5; ++attempt) {
    auto unwritten = Acquire(2);
    Fail();
    ASSERT_TRUE(unwritten->has_value());
    EXPECT_FALSE((*unwritten)->ok());
  }
  auto written = Acquire(2);
  Commit();
  EXPECT_EQ(LeaseIn(written, 2).kind(), v1::Lease::KIND_FINALS);
}

TEST_F(FleetEventsTest, FinalsAreNotMeasuredTwiceBecauseAConfirmationWasNotWritten) {
  const int64_t job = MeasureFinals().first;
  const v1::Lease others = LeaseNextFinals(job);
  const int64_t measured = others.candidates(0).id();
  Register(2);
  auto unwritten = Acquire(2);
  Fail();
  EXPECT_FALSE((*unwritten)->ok());
  auto confirmation = Acquire(2);
  Commit();
  EXPECT_NE(LeaseIn(confirmation, 2).candidates(0).id(), measured);
  Register(3);
  auto nothing = Acquire(3);
  Commit();
  EXPECT_FALSE(nothing->has_value()) << "the finals are being measured";
}

TEST_F(FleetEventsTest, AConfirmationThatComesBackGivesWayToANewerOne) {
  const int64_t job = MeasureFinals().first;
  Register(2);
  auto older = Acquire(2);
  Commit();
  EXPECT_EQ(LeaseIn(older, 2).candidates(0).steps(), "inline p0");
  ReportThirdAsBest(LeaseNextFinals(job));
  Advance(absl::Seconds(31));  // the second host has gone
  Commit();
  Register(3);
  auto newer = Acquire(3);
  Commit();
  EXPECT_EQ(LeaseIn(newer, 2).candidates(0).steps(), "inline p2");
}

TEST_F(FleetEventsTest, OfConfirmationsThatComeBackTheNewestWaits) {
  const int64_t job = MeasureFinals().first;
  Register(2);
  auto older = Acquire(2);
  Commit();
  LeaseIn(older, 2);
  ReportThirdAsBest(LeaseNextFinals(job));
  Register(3);
  auto newer = Acquire(3);
  Commit();
  EXPECT_EQ(LeaseIn(newer, 2).candidates(0).steps(), "inline p2");
  Advance(absl::Seconds(31));  // both have gone, and the older lease comes back first
  Commit();
  Register(4);
  auto again = Acquire(4);
  Commit();
  EXPECT_EQ(LeaseIn(again, 2).candidates(0).steps(), "inline p2");
}

// Results of a lease that come in a report each, in the order of its candidates or against it.
TEST_F(FleetEventsTest, TheDefaultScheduleIsConfirmedBesideTheBestInWhicheverReportItCame) {
  for (const bool best_first : {true, false}) {
    SCOPED_TRACE(best_first);
    const int base = best_first ? 10 : 20;
    Register(base + 1);
    const int64_t job = StartJob();
    AskFinals(job, 2);
    auto finals = Acquire(base + 1);
    Commit();
    const v1::Lease lease = LeaseIn(finals, 2);
    Register(base + 2);
    auto asked = Acquire(base + 2);
    for (const int i : {best_first ? 0 : 1, best_first ? 1 : 0}) {
      v1::Lease part = lease;
      part.clear_candidates();
      *part.add_candidates() = lease.candidates(i);
      EXPECT_FALSE(asked->has_value()) << "the default schedule's time is awaited";
      Report(base + 1, part);
      Commit();
    }
    const v1::Lease confirmation = LeaseIn(asked, 2);
    EXPECT_EQ(confirmation.candidates(0).steps(), "inline p0");
    EXPECT_EQ(confirmation.candidates(1).steps(), "inline p1");
    Do([&](FleetState& state) { state.CancelJob(admin_, job, [](const auto&) {}); });
    Report(base + 2, confirmation);
    Commit();
  }
}

TEST_F(FleetEventsTest, ABestIsConfirmedWithoutTheDefaultScheduleWhereThatIsLost) {
  Register(1);
  Register(2);
  const int64_t job = StartJob();
  AskFinals(job, 2);
  auto finals = Acquire(1);
  Commit();
  v1::Lease best = LeaseIn(finals, 2);
  best.mutable_candidates()->RemoveLast();
  Report(1, best);
  Commit();
  auto asked = Acquire(2);
  Commit();
  EXPECT_FALSE(asked->has_value());
  now_ms_ += 31'000;  // the first host has gone, with the default schedule
  Beat(2);
  Do([](FleetState& state) { state.Tick(); });
  Commit();
  EXPECT_EQ(LeaseIn(asked, 1).candidates(0).steps(), "inline p0");
}

TEST_F(FleetEventsTest, TheDefaultScheduleOfAnotherLeaseIsConfirmedBesideTheBest) {
  Register(1);
  const int64_t job = StartJob();
  AskFinals(job, 2);
  auto finals = Acquire(1);
  Commit();
  const v1::Lease lease = LeaseIn(finals, 2);
  v1::ReportRequest report = ReportOf(sessions_[1], lease);
  *report.mutable_results(1) = ResultOf(lease.candidates(1), v1::OUTCOME_WORKER_LOST);
  Report(1, report);
  Commit();
  auto rest = Acquire(1);
  Commit();
  Report(1, LeaseIn(rest, 1));
  Commit();
  Register(2);
  auto asked = Acquire(2);
  Commit();
  const v1::Lease confirmation = LeaseIn(asked, 2);
  EXPECT_EQ(confirmation.candidates(0).steps(), "inline p0");
  EXPECT_EQ(confirmation.candidates(1).steps(), "inline p1");
}

TEST_F(FleetEventsTest, AConfirmationThatIsReportedTwiceIsJudgedOnce) {
  const v1::Lease first = MeasureFinals().second;
  Register(2);
  auto asked = Acquire(2);
  Commit();
  const v1::Lease confirmation = LeaseIn(asked, 2);
  ReportAs(2, confirmation, first);
  ReportAs(2, confirmation, first);  // before the first one is committed
  Commit();
  Register(3);
  auto third = Acquire(3);
  Commit();
  EXPECT_FALSE(third->has_value()) << "they agree: no third word is needed";
}

// Devices ask again and again, and each would go through all that its own host has found.
TEST(ConfirmationsTest, NoneIsLookedAtTwiceForTheSameHost) {
  Confirmations confirmations;
  const auto ask = [&](const std::string& program, const std::string& host, int64_t token) {
    search_space::TensorProgram made;
    made.hash = program;
    Confirmation confirmation;
    confirmation.program = std::make_shared<const search_space::TensorProgram>(std::move(made));
    confirmation.measured[host] = token;
    confirmation.number = confirmations.NextNumber();
    confirmations.Ask("model", std::move(confirmation));
  };
  for (int i = 0; i < 100; ++i) ask("p" + std::to_string(i), "a", 1);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(confirmations.Take("model", "a", 1).has_value());
  EXPECT_EQ(confirmations.matches(), 100);
  ask("of another", "b", 2);
  const auto others = confirmations.Take("model", "a", 1);
  ASSERT_TRUE(others.has_value());
  EXPECT_EQ(others->program->hash, "of another");
  EXPECT_EQ(confirmations.matches(), 101);
  // What was in vain for one host is not for others, in the order in which it was asked for.
  for (int i = 0; i < 100; ++i) {
    const auto taken = confirmations.Take("model", "c", 3);
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->program->hash, "p" + std::to_string(i));
  }
  EXPECT_FALSE(confirmations.AnyWait("model"));
}

}  // namespace
}  // namespace heddle::server
