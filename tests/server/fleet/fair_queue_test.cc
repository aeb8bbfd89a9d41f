#include "server/fleet/jobs/fair_queue.h"

#include <gtest/gtest.h>

#include <map>

namespace heddle::server {
namespace {

// Whatever a turn costs them, all get the same.
TEST(FairQueueTest, TheSameForAllWhateverATurnCosts) {
  FairQueue queue(4);
  const std::map<std::string, double> cost{{"a", 10}, {"b", 1}, {"c", 3}};
  std::map<std::string, double> got;
  for (int i = 0; i < 1000; ++i) {
    const std::string next = queue.Next({"a", "b", "c"});
    queue.Charge(next, cost.at(next));
    got[next] += cost.at(next);
  }
  EXPECT_NEAR(got["a"], got["b"], 15);
  EXPECT_NEAR(got["a"], got["c"], 15);
}

// A newcomer need not wait until what others had before it is made up for, nor do they for it.
TEST(FairQueueTest, NothingIsOwedForTheTimeAlone) {
  FairQueue queue(1);
  for (int i = 0; i < 1000; ++i) queue.Charge(queue.Next({"old"}), 1);
  std::map<std::string, int> turns;
  for (int i = 0; i < 20; ++i) {
    const std::string next = queue.Next({"new", "old"});
    queue.Charge(next, 1);
    ++turns[next];
  }
  EXPECT_NEAR(turns["new"], 10, 2);
}

TEST(FairQueueTest, WhatWasNotUsedIsPaidBack) {
  FairQueue queue(1);
  EXPECT_EQ(queue.Next({"a"}), "a");
  queue.Charge("a", 100);
  EXPECT_FALSE(queue.HasCredit("a"));
  queue.Charge("a", -100);
  EXPECT_TRUE(queue.HasCredit("a"));
}

}  // namespace
}  // namespace heddle::server
