#include "base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support.h"

namespace heddle::measure {
namespace {

static_assert(!std::is_convertible_v<SteadyTime, absl::Time>);
static_assert(!std::is_convertible_v<absl::Time, SteadyTime>);
static_assert(!std::is_constructible_v<SteadyTime, absl::Time>);
static_assert(!std::is_constructible_v<absl::Time, SteadyTime>);

TEST(ClockTest, SpansAndMomentsAreReckonedWith) {
  const SteadyTime now = SteadyNow();
  EXPECT_GE(SteadyNow(), now);
  EXPECT_EQ((now + absl::Seconds(3)) - now, absl::Seconds(3));
  EXPECT_LT(now - absl::Seconds(1), now);
  EXPECT_GT(SteadyTime::InfiniteFuture(), now);
  EXPECT_LT(SteadyTime::InfinitePast(), now);
  EXPECT_EQ(now - SteadyTime::InfinitePast(), absl::InfiniteDuration());
  EXPECT_EQ(now + absl::InfiniteDuration(), SteadyTime::InfiniteFuture());
}

// The system's clock, which may jump: what is shown, stored or compared with what callers gave.
const std::map<std::string, int> kWallClock = {
    {"base/clock.h", 1},                   // a comment
    {"base/log.cc", 1},                    // a line's time
    {"server/engine/engine.h", 1},         // what is stored, and when jobs expire
    {"server/api/records_service.cc", 1},  // when trials were retracted
    {"server/api/tuning_service.cc", 2},   // whether a job has expired
    {"server/api/watch.cc", 2},            // an event's time
    {"cli/serve.cc", 2},                   // when a token was made and revoked
    {"cli/submit.cc", 1},                  // when a job expires
    {"cli/time.cc", 1},                    // when a trial was made
    {"tuner/records/records.cc", 1},       // the same
    {"tuner/search/session.cc", 2},        // the same
};

TEST(ClockTest, NothingWaitsByTheSystemsClock) {
  const std::filesystem::path root = tests::SourceDir();
  HEDDLE_NEEDS("sources", std::filesystem::exists(root / "server"), "only a bundle is here");
  // Abseil's timed waits end at a moment of the system's clock, gRPC's with a time_point as well.
  const std::regex waits(
      "With(Timeout|Deadline)\\(|system_clock|ToChronoTime|\\btime\\(nullptr\\)"),
      wall("absl::Now\\b");
  std::map<std::string, int> found;
  for (const char* folder : {"search_space", "measure", "tuner", "server", "client"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h") continue;
      const std::string name = std::filesystem::relative(entry.path(), root);
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        EXPECT_FALSE(std::regex_search(line, waits)) << name << ": " << line;
        if (std::regex_search(line, wall)) ++found[name];
      }
    }
  }
  EXPECT_EQ(found, kWallClock) << "budgets, deadlines and durations go by SteadyNow";
}

}  // namespace
}  // namespace heddle::measure
