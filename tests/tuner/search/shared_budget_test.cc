#include "tuner/search/shared_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <vector>

namespace heddle::tuner {
namespace {

using testing::ElementsAre;
using Turn = SharedBudget::Turn;

SessionReport Ended(std::vector<double> times, double earlier_best_us = 0) {
  SessionReport report;
  report.times = std::move(times);
  report.trials = static_cast<int>(report.times.size());
  report.earlier_best_us = earlier_best_us;
  double best = earlier_best_us;
  for (double time : report.times) {
    if (time > 0 && (best == 0 || time < best)) best = time;
  }
  if (best > 0) {
    report.best.emplace();
    report.best->result.time_us = best;
  }
  return report;
}

TEST(LastImprovementTest, IsWhatTheLaterHalfBrought) {
  EXPECT_DOUBLE_EQ(LastImprovement(Ended({100, 80, 60, 90})), 0.25);
  EXPECT_DOUBLE_EQ(LastImprovement(Ended({100, 50, 60, 90})), 0);
  EXPECT_DOUBLE_EQ(LastImprovement(Ended({0, 100, 0, 75})), 0.25);
  // Of what was known before.
  EXPECT_DOUBLE_EQ(LastImprovement(Ended({100, 80, 60, 90}, 50)), 0);
  EXPECT_DOUBLE_EQ(LastImprovement(Ended({100, 80, 30, 90}, 40)), 0.25);
  // Nothing to compare with.
  EXPECT_EQ(LastImprovement(Ended({0, 0, 0, 75})), 0);
  EXPECT_EQ(LastImprovement(Ended({0, 0})), 0);
  EXPECT_EQ(LastImprovement(Ended({})), 0);
}

// Workloads whose nth trial takes what a function says.
class SharedBudgetTest : public testing::Test {
 protected:
  using TimeOf = std::function<double(int)>;

  // Plays the budget through; the turns' sizes by workload.
  void Play(SharedBudget budget, const std::vector<TimeOf>& workloads) {
    turns_.assign(workloads.size(), {});
    std::vector<int> done(workloads.size(), 0);
    std::vector<double> best(workloads.size(), 0);
    for (auto turn = budget.Next(); turn; turn = budget.Next()) {
      const size_t w = turn->workload;
      turns_[w].push_back(turn->trials);
      order_.push_back(w);
      std::vector<double> times;
      bool exhausted = false;
      for (int i = 0; i < turn->trials && !exhausted; ++i) {
        const double time = workloads[w](done[w]);
        exhausted = std::isnan(time);
        if (exhausted) break;
        times.push_back(time);
        ++done[w];
      }
      SessionReport report = Ended(times, best[w]);
      if (exhausted) report.stop = StopReason::kExhausted;
      if (report.best) best[w] = report.best->result.time_us;
      budget.Report(*turn, report);
      ASSERT_LT(order_.size(), 100u) << "no end";
    }
    trials_ = done;
  }

  std::vector<std::vector<int>> turns_;
  std::vector<size_t> order_;
  std::vector<int> trials_;
};

double Flat(int) { return 100; }
double Gaining(int trial) { return 100 * std::pow(0.99, trial); }

TEST_F(SharedBudgetTest, EachHasATurnAndTheRestGoesWhereTrialsStillGain) {
  Play(SharedBudget(100, 0, {1, 1, 1}), {Flat, Gaining, Flat});
  EXPECT_THAT(trials_, ElementsAre(50, 200, 50));
  EXPECT_THAT(std::vector<size_t>(order_.begin(), order_.begin() + 3), ElementsAre(0, 1, 2));
}

TEST_F(SharedBudgetTest, WhatAnExhaustedWorkloadLeavesGoesToTheOthers) {
  auto five = [](int trial) { return trial < 5 ? Gaining(50 * trial) : NAN; };
  Play(SharedBudget(100, 0, {1, 1}), {five, Gaining});
  EXPECT_THAT(turns_[0], ElementsAre(50));
  EXPECT_THAT(trials_, ElementsAre(5, 195));
}

TEST_F(SharedBudgetTest, WeightsAndTimesCount) {
  Play(SharedBudget(100, 0, {1, 3}), {Gaining, Gaining});
  EXPECT_GT(trials_[1], trials_[0]);
  Play(SharedBudget(100, 0, {1, 1}), {[](int n) { return 10 * Gaining(n); }, Gaining});
  EXPECT_GT(trials_[0], trials_[1]);
}

TEST_F(SharedBudgetTest, WithoutGainsItIsSpreadAndSpent) {
  Play(SharedBudget(100, 0, {1, 1}), {Flat, Flat});
  EXPECT_THAT(trials_, ElementsAre(100, 100));
}

TEST_F(SharedBudgetTest, WhatNeverWorksGetsNoMore) {
  Play(SharedBudget(100, 0, {1, 1}), {[](int) { return 0.0; }, Flat});
  EXPECT_THAT(trials_, ElementsAre(50, 150));
}

TEST_F(SharedBudgetTest, SmallBudgetsAreNotDivided) {
  Play(SharedBudget(10, 0, {1, 1}), {Flat, Gaining});
  EXPECT_THAT(trials_, ElementsAre(10, 10));
  EXPECT_THAT(turns_[1], ElementsAre(10));
}

TEST_F(SharedBudgetTest, TheLargestBudgetIsDividedToo) {
  SharedBudget budget(1 << 30, 0, {1, 1});
  for (int turns = 0; turns < 2; ++turns) budget.Report(*budget.Next(), Ended({100, 100}));
  const auto third = budget.Next();
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->trials, 1 << 29);
}

TEST_F(SharedBudgetTest, OneWorkloadHasAll) {
  Play(SharedBudget(100, 0, {1}), {Gaining});
  EXPECT_THAT(turns_[0], ElementsAre(100));
}

TEST_F(SharedBudgetTest, WithoutALimitEachHasOneTurn) {
  Play(SharedBudget(0, 0, {1, 1}), {Gaining, Gaining});
  EXPECT_THAT(order_, ElementsAre(0, 1));
}

TEST_F(SharedBudgetTest, SecondsAreSharedToo) {
  SharedBudget budget(0, 60, {1, 1});
  double seconds[2] = {};
  int turns = 0;
  for (auto turn = budget.Next(); turn; turn = budget.Next()) {
    ASSERT_LT(++turns, 100) << "no end";
    SessionReport report = turn->workload == 0 ? Ended({100, 100}) : Ended({100, 100, 80, 60});
    report.stop = StopReason::kSeconds;
    report.seconds = turn->seconds + 4;  // finals
    seconds[turn->workload] += turn->seconds;
    budget.Report(*turn, report);
  }
  EXPECT_EQ(seconds[0], 30);
  EXPECT_EQ(seconds[1], 90);
}

TEST_F(SharedBudgetTest, WhatAFailedTurnLeavesGoesToTheOthers) {
  SharedBudget budget(64, 0, {1, 1});
  budget.GiveBack(*budget.Next());
  const std::set<size_t> failed = {0};
  auto second = budget.Next(failed);
  ASSERT_EQ(second->workload, 1u);
  std::vector<double> times(32, 100.0);
  for (int left = 128; left > 0; left -= 32) {
    ASSERT_TRUE(second.has_value()) << left;
    EXPECT_EQ(second->workload, 1u);
    budget.Report(*second, Ended(times));
    second = budget.Next(failed);
  }
  EXPECT_FALSE(second.has_value());
}

TEST_F(SharedBudgetTest, TurnsOfSeveralDevicesAreOfDifferentWorkloadsAndShareWhatIsLeft) {
  SharedBudget budget(64, 0, {1, 1});
  const std::vector<double> times(32, 100.0);
  auto first = budget.Next(), second = budget.Next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->workload, 0u);
  EXPECT_EQ(second->workload, 1u);
  EXPECT_FALSE(budget.Next()) << "both are taken";
  budget.Report(*first, Ended(times));
  first = budget.Next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->workload, 0u);
  budget.Report(*second, Ended(times));
  second = budget.Next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->workload, 1u);
  budget.Report(*first, Ended(times));
  EXPECT_FALSE(budget.Next()) << "what is left is the running turn's";
  budget.Report(*second, Ended(std::vector<double>(8, 100.0)));
  const auto last = budget.Next();
  ASSERT_TRUE(last) << "which has not used it up";
  EXPECT_EQ(last->trials, 24);
}

TEST_F(SharedBudgetTest, WhatFailedOnOneDeviceAnotherTakes) {
  SharedBudget budget(64, 0, {1, 1});
  const auto lost = budget.Next();
  ASSERT_TRUE(budget.Next());
  budget.GiveBack(*lost);
  EXPECT_FALSE(budget.Next({lost->workload})) << "and the other workload is taken";
  const auto again = budget.Next();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->workload, lost->workload);
  EXPECT_EQ(again->trials, lost->trials);
}

}  // namespace
}  // namespace heddle::tuner
