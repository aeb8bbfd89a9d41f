#include "base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
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

// Who may ask the system's clock, which jumps: for what is shown, stored or compared with what
// callers gave.
const std::set<std::string> kWallClock = {
    "base/clock.h",                   // a comment
    "base/log.cc",                    // a line's time
    "server/fleet/event/options.h",   // what is stored, and when jobs expire
    "server/api/records_service.cc",  // when trials were retracted
    "server/api/rpc.cc",              // when a token ends and was used
    "server/api/rpc.h",               // a replica's age
    "server/db/replica.cc",           // of what moment it is
    "server/api/server.cc",           // when a certificate ends
    "server/api/tuning_service.cc",   // whether a job has expired
    "server/api/wait.cc",             // when a token ends
    "server/api/watch.cc",            // an event's time
    "cli/serve.cc",                   // when a token was made and revoked
    "cli/submit.cc",                  // when a job expires
    "cli/suite.cc",                   // a batch's name
    "cli/time.cc",                    // when a trial was made
    "tuner/records/records.cc",       // the same
    "tuner/records/trial_record.cc",  // a run's name
    "tuner/search/session.cc",        // when a trial was made
};

TEST(ClockTest, NothingWaitsByTheSystemsClock) {
  const std::filesystem::path root = tests::SourceDir();
  HEDDLE_NEEDS("sources", std::filesystem::exists(root / "server"), "only a bundle is here");
  // Abseil's timed waits end at a moment of the system's clock, gRPC's with a time_point as well.
  constexpr const char* kWaits[] = {"WithTimeout(", "WithDeadline(", "system_clock", "ToChronoTime",
                                    " time(nullptr)"};
  const auto has = [](const std::string& line, const char* text) {
    return line.find(text) != std::string::npos;
  };
  for (const char* folder :
       {"base", "search_space", "measure", "tuner", "server", "client", "daemon", "cli"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h") continue;
      const std::string name = std::filesystem::relative(entry.path(), root);
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        for (const char* wait : kWaits) EXPECT_FALSE(has(line, wait)) << name << ": " << line;
        if (kWallClock.contains(name)) continue;
        EXPECT_FALSE(has(line, "absl::Now"))
            << name << ": " << line << "\nbudgets, deadlines and durations go by SteadyNow";
      }
    }
  }
}

}  // namespace
}  // namespace heddle::measure
