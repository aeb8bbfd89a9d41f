#include "server/api/timers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace heddle::server {
namespace {

TEST(TimersTest, WhatIsDueIsCalledOnceInOrder) {
  Timers timers;
  std::vector<int> called;
  const SteadyTime start = SteadyNow();
  const auto at = [&](int seconds, int what) {
    return timers.Add(start + absl::Seconds(seconds), [&called, what] { called.push_back(what); });
  };
  at(3, 3);
  at(1, 1);
  const Timers::Key removed = at(2, 2);
  at(1, 11);
  timers.Run(start);
  EXPECT_THAT(called, testing::IsEmpty());
  timers.Remove(removed);
  timers.Run(start + absl::Seconds(2));
  EXPECT_THAT(called, testing::ElementsAre(1, 11));
  timers.Run(start + absl::Hours(1));
  timers.Run(start + absl::Hours(1));
  EXPECT_THAT(called, testing::ElementsAre(1, 11, 3));
  timers.Remove(removed);
}

// What is called may ask for more.
TEST(TimersTest, ACallMayAddAndRemove) {
  Timers timers;
  int calls = 0;
  const SteadyTime start = SteadyNow();
  const Timers::Key other = timers.Add(start + absl::Seconds(9), [&] { ++calls; });
  timers.Add(start, [&] {
    timers.Remove(other);
    timers.Add(start, [&] { calls += 10; });
  });
  timers.Run(start);
  EXPECT_EQ(calls, 0);
  timers.Run(start + absl::Seconds(10));
  EXPECT_EQ(calls, 10);
}

}  // namespace
}  // namespace heddle::server
