// How many threads can run at once, by affinity and control groups.
#include "base/host.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/process.h"

namespace heddle {
namespace {

class UsableCoresTest : public testing::Test {
 protected:
  // Of a process in the group a/b, where the limits of the root, of a and of b are these.
  int Cores(const std::string& root, const std::string& a, const std::string& b) {
    const std::filesystem::path groups = folder_.path();
    std::filesystem::create_directories(groups / "a" / "b");
    std::ofstream(groups / "own") << "1:cpu:/elsewhere\n0::/a/b\n";
    std::ofstream(groups / "cpu.max") << root;
    std::ofstream(groups / "a" / "cpu.max") << a;
    std::ofstream(groups / "a" / "b" / "cpu.max") << b;
    return UsableCores(groups.string(), (groups / "own").string());
  }
  tests::TempFolder folder_;
};

TEST_F(UsableCoresTest, WithoutALimitThoseTheProcessMayRunOn) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(Cores("", "max 100000", "max 100000"), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  // Of a thread of its own, so that later tests are not held to one processor.
  std::thread([&] {
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(Cores("", "max 100000", "max 100000"), 1);
  }).join();
}

TEST_F(UsableCoresTest, TheLeastLimitOfTheGroupsItIsInRoundedUp) {
  EXPECT_EQ(Cores("", "max 100000", "50000 100000"), 1);
  EXPECT_EQ(Cores("", "90000 100000", "max 100000"), 1);
  EXPECT_EQ(Cores("1000 100000", "max 100000", "max 100000"), 1);
  const int all = Cores("", "", "");
  EXPECT_EQ(Cores("", "", absl::StrCat(all * 100000 - 50000, " 100000")), all);
}

TEST_F(UsableCoresTest, WhatCannotBeReadLimitsNothing) {
  const int all = Cores("", "", "");
  EXPECT_EQ(Cores("", "many 100000", "100000 0"), all);
  EXPECT_EQ(UsableCores("/nonexistent", "/nonexistent"), all);
}

}  // namespace
}  // namespace heddle
