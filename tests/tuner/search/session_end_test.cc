// What ends a session, and what it leaves then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/tuner/session_support.h"

namespace heddle::tuner {
namespace {

using search_space::Point;
using testing::HasSubstr;

TEST_F(SessionTest, InterruptionKeepsWhatWasMeasuredAndForgetsWhatWasNot) {
  bool stop = false;
  measurer_.on_next = [&](int given) { stop = given == 7; };
  // After the signal the results that are ready are still taken, then nothing is.
  options_.interrupted = [&] { return stop || measurer_.given >= 7; };
  measurer_.script = [](int n) { return Ok(n == 3 ? 10 : 100); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stop, StopReason::kInterrupted);
  EXPECT_GE(report->trials, 7);
  EXPECT_EQ(static_cast<int>(ScreenedPoints().size()), report->trials);
  EXPECT_TRUE(measurer_.finalists.empty());
  ASSERT_TRUE(report->best.has_value());
  EXPECT_EQ(report->best->result.time_us, 10);
  EXPECT_FALSE(report->best->is_final);
  EXPECT_FALSE(report->best->steps.empty());
  EXPECT_TRUE(Intents().empty());
}

TEST_F(SessionTest, TheFinalsCanBeInterruptedToo) {
  std::atomic<bool> in_finals = false;
  options_.on_finals = [&](size_t) { in_finals = true; };
  options_.interrupted = [&] { return in_finals.load(); };
  measurer_.endless_finals = true;
  measurer_.script = [](int n) { return Ok(n == 3 ? 10 : 100); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stop, StopReason::kInterrupted);
  EXPECT_EQ(report->trials, 20);
  ASSERT_TRUE(report->best.has_value());
  EXPECT_EQ(report->best->result.time_us, 10);
  EXPECT_FALSE(report->best->is_final);
  EXPECT_EQ(static_cast<int>(ScreenedPoints().size()), report->trials);
}

TEST_F(SessionTest, PlateauStops) {
  options_.trials = 0;
  options_.plateau = 5;
  measurer_.script = [](int n) { return Ok(n < 4 ? 100 - 10 * n : 99 + 0.1 * n); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stop, StopReason::kPlateau);
  EXPECT_GE(report->trials, 3 + 5);
  EXPECT_LE(report->trials, 3 + 5 + 4) << "what was in flight may follow";
}

TEST_F(SessionTest, ImprovementsBelowOnePercentAreNone) {
  options_.trials = 0;
  options_.plateau = 5;
  measurer_.script = [](int n) { return Ok(100 - 0.01 * n); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_LE(report->trials, 1 + 5 + 4);
}

TEST_F(SessionTest, SecondsStop) {
  options_.trials = 0;
  options_.seconds = 0.2;
  measurer_.on_next = [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stop, StopReason::kSeconds);
  EXPECT_GE(report->seconds, 0.1);
  EXPECT_GE(report->trials, 3);
  EXPECT_LE(report->trials, 12);
}

// The first trial goes alone, and takes what compiling takes: a budget of 65 times that is not one
// of 65 trials where 200 are compiled at a time.
TEST_F(SessionTest, CompilersAreBusyFromTheSecondTrialOn) {
  options_.trials = 201;
  options_.seconds = 20;
  measurer_.wanted = 200;
  measurer_.script = [](int) {
    measure::TrialResult result = Ok(100);
    result.compile_s = 0.3;
    result.time_s = 0.001;
    return result;
  };
  int others = 0;
  measurer_.on_next = [&](int n) {
    if (n == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (n == 2) others = measurer_.pending();
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(others, 199) << "beside the second";
}

// The default may have been compiled before the session began, by a compiler that had just started,
// beside many others: that took longer than the whole budget, which later trials need not.
TEST_F(SessionTest, ASlowFirstCompilationDoesNotEndTheSearch) {
  options_.trials = 0;
  options_.seconds = 1;
  measurer_.wanted = 8;
  measurer_.script = [](int n) {
    measure::TrialResult result = Ok(100 - n);
    result.compile_s = n == 1 ? 20 : 0.05;
    return result;
  };
  measurer_.on_next = [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stop, StopReason::kSeconds);
  EXPECT_GE(report->trials, 8);
}

TEST_F(SessionTest, TwentyEqualBuildErrorsEndTheSessionWithTheReason) {
  options_.trials = 100;
  measurer_.script = [](int n) {
    return Failed(Outcome::kBuildError, absl::StrCat("k0.cu(", n, "): error: no such type\nmore"));
  };
  auto report = Run();
  EXPECT_EQ(report.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("error: no such type"));
  EXPECT_EQ(Recorded().size(), 20u);
  EXPECT_TRUE(Intents().empty());
}

TEST_F(SessionTest, BuildErrorsThatDifferOrAreInterruptedDoNot) {
  options_.trials = 60;
  measurer_.script = [](int n) {
    if (n % 19 == 0) return Ok(100);
    return Failed(Outcome::kBuildError, n > 40 && n % 2 ? "error: one" : "error: other");
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->trials, 60);
}

TEST_F(SessionTest, ALostDeviceEndsTheSessionAndKeepsTheTrials) {
  measurer_.fail_after = 5;
  measurer_.error = absl::UnavailableError("the device is gone");
  auto report = Run();
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Recorded().size(), 5u);
  EXPECT_TRUE(Intents().empty());
}

TEST_F(SessionTest, ASmallSpaceIsExhausted) {
  struct Few : Proposer {
    const SearchSpace& space;
    std::vector<Point> left;
    explicit Few(const SearchSpace& s) : space(s) {
      search_space::Rng rng(3);
      while (left.size() < 5) left.push_back(*space.Sample(rng));
    }
    std::vector<Point> Propose(int count, const std::function<bool(const Point&)>& tried) override {
      std::vector<Point> points;
      while (count > 0 && !left.empty()) {
        if (!tried(left.back())) points.push_back(left.back()), --count;
        left.pop_back();
      }
      return points;
    }
    void Observe(const Point&, const TrialResult&) override { ++observed; }
    int observed = 0;
  };
  Few proposer(space_);
  const auto log = MakeTrialLog(*records_, space_.program(), environment_);
  Session session(space_, measurer_, *log, environment_.l2, proposer, options_);
  auto report = session.Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stop, StopReason::kExhausted);
  EXPECT_LE(report->trials, 6);
  EXPECT_EQ(proposer.observed, report->trials);
}

// Who interrupts a run may end its processes too, and that is no candidate's fault.
TEST_F(SessionTest, WhatEndsWithAnInterruptedRunIsNoTrial) {
  bool interrupted = false;
  options_.interrupted = [&] { return interrupted; };
  measurer_.on_next = [&](int n) { interrupted = n >= 5; };
  measurer_.script = [](int n) {
    return n <= 5 ? Ok(100 - n) : Failed(Outcome::kWorkerLost, "signal 9 (Killed)");
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stop, StopReason::kInterrupted);
  EXPECT_GT(measurer_.given, 5) << "some were in flight";
  EXPECT_EQ(Outcomes(), std::vector<Outcome>(5, Outcome::kOk));
  EXPECT_TRUE(Intents().empty());
}

TEST_F(SessionTest, ProcessesThatAreLostAgainAndAgainEndIt) {
  measurer_.script = [](int n) {
    return n == 1 ? Ok(100) : Failed(Outcome::kWorkerLost, "cannot start a process");
  };
  options_.trials = 1000;
  auto report = Run();
  EXPECT_TRUE(absl::IsAborted(report.status())) << report.status();
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("cannot start a process"));
  EXPECT_EQ(measurer_.given, 1 + kSameErrors);
}

}  // namespace
}  // namespace heddle::tuner
