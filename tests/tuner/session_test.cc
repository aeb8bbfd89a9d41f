#include "tuner/search/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/sqlite.h"
#include "search_space/notation/notation.h"
#include "tests/process.h"
#include "tuner/records/records_fields.h"
#include "tuner/search/default_point.h"

namespace heddle::tuner {
namespace {

using measure::Measured;
using measure::Outcome;
using measure::TrialResult;
using search_space::Point;
using search_space::SearchSpace;
using search_space::Step;
using testing::HasSubstr;

TrialResult Ok(double time_us) {
  TrialResult r;
  r.outcome = Outcome::kOk;
  r.time_us = time_us;
  r.ci_low_us = time_us * 0.99;
  r.ci_high_us = time_us * 1.01;
  return r;
}
TrialResult Failed(Outcome outcome, const std::string& detail) {
  TrialResult r;
  r.outcome = outcome;
  r.detail = detail;
  return r;
}

// Answers from a script instead of a device.
class FakeMeasurer : public measure::Measurer {
 public:
  // The result of the nth candidate, from 1.
  std::function<TrialResult(int)> script = [](int n) { return Ok(100 - n); };
  // The final result of a schedule.
  std::function<TrialResult(const std::vector<Step>&)> finals = [](const auto&) { return Ok(50); };
  std::function<void(int)> on_next = [](int) {};
  absl::Status error;  // of Next, once `fail_after` results were given
  int fail_after = 1 << 30;
  int wanted = 4;               // in flight
  bool endless_finals = false;  // until they are stopped
  absl::Notification stopped;

  void Submit(measure::Candidate candidate) override {
    queue_.push_back(candidate.id);
    submitted.push_back(candidate.steps);
    points.push_back(candidate.point);
    most_pending = std::max(most_pending, pending());
  }
  int pending() const override { return static_cast<int>(queue_.size()); }
  int wanted_in_flight() const override { return wanted; }
  absl::StatusOr<std::optional<Measured>> Next(absl::Duration) override {
    if (given >= fail_after) return error;
    if (queue_.empty()) return std::optional<Measured>();
    Measured m{queue_.front(), script(++given)};
    queue_.pop_front();
    on_next(given);
    return std::optional<Measured>(m);
  }
  absl::StatusOr<std::vector<TrialResult>> MeasureFinalists(
      const std::vector<measure::Candidate>& candidates, absl::Duration) override {
    finalists = candidates;
    if (endless_finals) {
      stopped.WaitForNotification();
      return absl::CancelledError("stopped");
    }
    std::vector<TrialResult> results;
    for (const auto& c : candidates) results.push_back(finals(c.steps));
    return results;
  }
  void Stop() override { stopped.Notify(); }
  measure::DeviceState device_state() const override { return state; }
  measure::DeviceWaits device_waits() const override { return waits; }

  std::vector<std::vector<Step>> submitted;
  std::vector<std::string> points;  // of those submitted
  std::vector<measure::Candidate> finalists;
  measure::DeviceState state;
  measure::DeviceWaits waits;
  int given = 0, most_pending = 0;

 private:
  std::deque<int64_t> queue_;
};

class SessionTest : public testing::Test {
 protected:
  SessionTest() : space_(MakeSpace()) {
    auto records = Records::Open(folder_ / "heddle.db");
    EXPECT_TRUE(records.ok()) << records.status();
    records_ = *std::move(records);
    environment_.device_name = space_.target().name;
    environment_.arch = "sm_90";
    options_.trials = 20;
  }

  static SearchSpace MakeSpace() {
    auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
    auto program =
        op->Instantiate({{"m", 64}, {"n", 64}, {"k", 64}}, search_space::DType::kFloat32);
    auto target = search_space::FindTarget("h100");
    auto space = SearchSpace::Create(
        std::make_shared<const search_space::TensorProgram>(*std::move(program)), *target);
    EXPECT_TRUE(space.ok()) << space.status();
    return *std::move(space);
  }

  absl::StatusOr<SessionReport> Run(uint64_t seed = 1) {
    auto proposer = MakeRandomProposer(space_, seed);
    const auto log = MakeTrialLog(*records_, space_.program(), environment_);
    return Session(space_, measurer_, *log, environment_.l2, *proposer, options_).Run();
  }
  std::vector<TrialRecord> Recorded() {
    auto trials = records_->Trials(space_.program(), environment_);
    EXPECT_TRUE(trials.ok()) << trials.status();
    return *std::move(trials);
  }
  // Points of screening trials, in order.
  std::vector<std::string> ScreenedPoints() {
    std::vector<std::string> points;
    for (const TrialRecord& t : Recorded()) {
      if (t.stage == TrialStage::kScreening) points.push_back(t.point);
    }
    return points;
  }
  // Of screening trials.
  std::vector<Outcome> Outcomes() {
    std::vector<Outcome> outcomes;
    for (const TrialRecord& t : Recorded()) {
      if (t.stage == TrialStage::kScreening) outcomes.push_back(t.result.outcome);
    }
    return outcomes;
  }
  std::vector<std::string> Intents() {
    auto intents = records_->StaleIntents(space_.program(), environment_);
    EXPECT_TRUE(intents.ok()) << intents.status();
    return *intents;
  }

  tests::TempFolder folder_;
  SearchSpace space_;
  FakeMeasurer measurer_;
  std::unique_ptr<Records> records_;
  Environment environment_;
  SessionOptions options_;
};

TEST_F(SessionTest, TheDefaultScheduleIsTrialOne) {
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(ScreenedPoints().front(), space_.Print(DefaultPoint(space_)));
  EXPECT_EQ(measurer_.submitted.front(), *space_.Steps(DefaultPoint(space_)));
}

TEST_F(SessionTest, EveryTrialIsRecordedOnceAndTheQueueIsKeptFull) {
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->trials, 20);
  EXPECT_EQ(report->ok, 20);
  EXPECT_EQ(report->stop, StopReason::kTrials);
  EXPECT_EQ(report->times.size(), 20u);
  auto points = ScreenedPoints();
  EXPECT_EQ(points.size(), 20u);
  EXPECT_EQ(std::set<std::string>(points.begin(), points.end()).size(), 20u);
  EXPECT_EQ(measurer_.most_pending, 4);
  EXPECT_EQ(measurer_.pending(), 0);
}

// Whoever measures elsewhere knows the point of what it is given.
TEST_F(SessionTest, CandidatesCarryTheirPoints) {
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(measurer_.points, ScreenedPoints());
  std::set<int64_t> ids;
  ASSERT_FALSE(measurer_.finalists.empty());
  for (const measure::Candidate& finalist : measurer_.finalists) {
    EXPECT_TRUE(ids.insert(finalist.id).second);
    EXPECT_EQ(finalist.steps, *space_.Steps(*space_.Parse(finalist.point)));
  }
}

TEST_F(SessionTest, FailuresAreCountedByKindAndNeverWin) {
  measurer_.script = [](int n) {
    if (n % 4 == 2) return Failed(Outcome::kWrongAnswer, "off");
    if (n % 4 == 3) return Failed(Outcome::kIllegalAccess, "signal 11");
    return Ok(100 - n);
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->ok, 10);
  EXPECT_EQ(report->failed[Outcome::kWrongAnswer], 5);
  EXPECT_EQ(report->failed[Outcome::kIllegalAccess], 5);
  ASSERT_TRUE(report->best.has_value());
  EXPECT_EQ(report->best->result.outcome, Outcome::kOk);
  EXPECT_EQ(report->times[1], 0);
}

TEST_F(SessionTest, NothingValidIsAReportWithoutABest) {
  measurer_.script = [](int) { return Failed(Outcome::kWrongAnswer, "off"); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->best.has_value());
  EXPECT_EQ(report->default_us, 0);
  EXPECT_TRUE(measurer_.finalists.empty());
}

TEST_F(SessionTest, FinalistsAreTheBestWithinTheMargin) {
  // 100 for all but four near 50 and one at 56, more than 10 % slower.
  measurer_.script = [](int n) {
    return Ok(n >= 10 && n < 14 ? 50 + n * 0.1 : n == 14 ? 57 : 100);
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->finalists, 4 + 1) << "and the default";
  int finals = 0;
  for (const TrialRecord& t : Recorded()) {
    if (t.stage != TrialStage::kFinal) continue;
    ++finals;
    auto steps = search_space::ParseSteps(t.steps);
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(*steps, *space_.Steps(*space_.Parse(t.point)));
  }
  EXPECT_EQ(finals, 4 + 1);
  EXPECT_TRUE(report->best->is_final);
}

TEST_F(SessionTest, TheSpeedUpComparesWhatWasMeasuredSideBySide) {
  measurer_.script = [](int n) { return Ok(n == 1 ? 100 : 50); };
  measurer_.finals = [&](const std::vector<Step>& steps) {
    return Ok(steps == measurer_.submitted[0] ? 120 : 60);
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->default_us, 120);
  EXPECT_EQ(report->best->result.time_us, 60);
}

TEST_F(SessionTest, ADefaultThatIsFarSlowerIsNotMeasuredAgain) {
  measurer_.script = [](int n) { return Ok(n == 1 ? 1000 : 50); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->default_us, 1000);
}

TEST_F(SessionTest, NoMoreFinalistsThanAsked) {
  measurer_.script = [](int) { return Ok(50); };
  options_.max_finalists = 3;
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(measurer_.finalists.size(), testing::AnyOf(3u, 3u + 1)) << "and the default";
}

TEST_F(SessionTest, AFinalistThatTurnsOutWrongDoesNotWin) {
  measurer_.script = [](int n) { return Ok(50 + n * 0.1); };
  measurer_.finals = [&](const std::vector<Step>& steps) {
    return steps == measurer_.submitted[0] ? Failed(Outcome::kWrongAnswer, "off") : Ok(51);
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->best.has_value());
  EXPECT_NE(report->best->steps, measurer_.submitted[0]);
  EXPECT_EQ(report->default_us, 0) << "the default was the one that turned out wrong";
}

TEST_F(SessionTest, TuningAgainContinuesAndProposesNothingTwice) {
  ASSERT_TRUE(Run().ok());
  auto before = ScreenedPoints();
  measurer_.script = [](int) { return Ok(200); };
  auto report = Run();  // the same seed
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->trials, 20);
  EXPECT_GE(report->earlier_trials, 20);
  auto points = ScreenedPoints();
  EXPECT_EQ(points.size(), 40u);
  EXPECT_EQ(std::set<std::string>(points.begin(), points.end()).size(), 40u);
  // The first run's best is known and wins; its default is what the best is compared with.
  ASSERT_TRUE(report->best.has_value());
  EXPECT_THAT(before, testing::Contains(report->best->point));
  EXPECT_GT(report->default_us, 0);
}

// Others' word: neither their good times nor their failures decide what is measured here.
TEST_F(SessionTest, WhatWasImportedDecidesNothing) {
  ASSERT_TRUE(Run().ok());
  const std::vector<std::string> points = ScreenedPoints();
  std::stringstream lines;
  for (const TrialRecord& measured : Recorded()) {
    StoredTrial stored{{space_.program().hash, "matmul", R"({"k":64,"m":64,"n":64})", "float32",
                        space_.program().canonical_text},
                       environment_,
                       measured};
    const bool lie = measured.point == points[7];
    stored.trial.result = lie ? Ok(3) : Failed(Outcome::kWrongAnswer, "so they say");
    lines << PrintLine(stored) << '\n';
  }
  ASSERT_TRUE(records_->database().Run("DELETE FROM trial").ok());
  auto imported = records_->Import(lines);
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_GE(imported->added, 20) << testing::PrintToString(imported->rejected);
  measurer_.finalists.clear();
  measurer_.given = 0;
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(ScreenedPoints(), points) << "as if nothing had been said";
  EXPECT_EQ(report->earlier_trials, 0);
  EXPECT_EQ(report->earlier_best_us, 0);
  EXPECT_GT(measurer_.finalists.size(), 1);
  EXPECT_EQ(report->best->result.time_us, 50);
}

// Twenty candidates wait for the device when a session is killed: one of them ran, if any.
TEST_F(SessionTest, WhatWaitedWhenASessionWasKilledIsProposedAgain) {
  const pid_t child = fork();
  if (child == 0) {
    auto records = Records::Open(folder_ / "heddle.db");
    measurer_.wanted = 20;
    measurer_.on_next = [](int given) {
      if (given == 1) return;
      kill(getpid(), SIGKILL);
    };
    auto proposer = MakeRandomProposer(space_, 1);
    if (records.ok()) {
      const auto log = MakeTrialLog(**records, space_.program(), environment_);
      Session(space_, measurer_, *log, environment_.l2, *proposer, options_).Run().IgnoreError();
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto left = records_->database().QueryInt("SELECT count(*) FROM intent");
  ASSERT_TRUE(left.ok());
  EXPECT_GE(*left, 15);
  auto report = Run(1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stale_intents, 0);
  left = records_->database().QueryInt("SELECT count(*) FROM intent");
  EXPECT_EQ(*left, 0) << "all were proposed again, and their results have deleted them";
}

TEST_F(SessionTest, AStaleIntentIsNotProposedButTheDefaultIs) {
  search_space::Rng rng(1);  // what the proposer would draw first
  auto first = space_.Sample(rng);
  ASSERT_TRUE(first.has_value());
  std::string suspect = space_.Print(*first), normal = space_.Print(DefaultPoint(space_));
  // The intents of two processes that are gone.
  for (int i = 0; i < 2; ++i) {
    pid_t child = fork();
    if (child == 0) {
      auto other = Records::Open(folder_ / "heddle.db");
      bool ok = other.ok() && (*other)->AddIntent(space_.program(), environment_, suspect).ok() &&
                (*other)->AddIntent(space_.program(), environment_, normal).ok();
      _exit(ok ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  auto report = Run(1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stale_intents, 1);
  EXPECT_THAT(ScreenedPoints(), testing::Not(testing::Contains(suspect)));
  EXPECT_EQ(ScreenedPoints().front(), normal);
}

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

TEST_F(SessionTest, RecordsCarryTheDeviceState) {
  measurer_.state.throttled = true;
  measurer_.state.other_processes = 2;
  ASSERT_TRUE(Run().ok());
  for (const TrialRecord& t : Recorded()) {
    EXPECT_TRUE(t.throttled);
    EXPECT_EQ(t.other_processes, 2);
  }
}

TEST_F(SessionTest, KnowsWhereItsTimeWent) {
  auto taking = [](TrialResult r) {
    r.compile_s = 3;
    r.load_s = 0.5;
    r.validate_s = 1;
    r.time_s = 2;
    return r;
  };
  measurer_.script = [&](int n) {
    return taking(n % 2 ? Ok(100) : Failed(Outcome::kWrongAnswer, "off"));
  };
  measurer_.finals = [&](const auto&) { return taking(Ok(50)); };
  measurer_.waits = {100, 200, 300};  // before the session
  measurer_.on_next = [&](int) {
    measurer_.waits.for_compilers_s += 4;
    measurer_.waits.for_candidates_s += 5;
    measurer_.waits.sampling_s += 1;
  };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  const int all = report->trials + report->finalists;
  ASSERT_GT(report->finalists, 1);
  const TimeSpent& spent = report->spent;
  EXPECT_EQ(spent.compile, 3 * all);
  EXPECT_EQ(spent.load, 0.5 * all);
  EXPECT_EQ(spent.validate, 1 * all);
  EXPECT_EQ(spent.time, 2 * all);
  EXPECT_EQ(spent.time_spare, 1 * report->trials);
  EXPECT_EQ(spent.busy(), 3.5 * all);
  EXPECT_EQ(spent.idle_compiling, 4 * report->trials);
  EXPECT_EQ(spent.idle_proposing, 5 * report->trials);
  EXPECT_GT(spent.search, 0);
  EXPECT_LT(spent.search, report->seconds) << "what a random proposer takes is waited for";
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

TEST_F(SessionTest, ProgressIsReportedAfterEveryTrial) {
  std::vector<int> seen;
  options_.on_progress = [&](const Progress& p) {
    if (seen.empty() || seen.back() != p.trials) seen.push_back(p.trials);
    EXPECT_EQ(p.trial_budget, 20);
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(seen.size(), 21u);
  EXPECT_EQ(seen.back(), 20);
}

TEST_F(SessionTest, WhatIsServedIsTheWinner) {
  measurer_.script = [](int) { return Ok(50); };
  int n = 0;
  measurer_.finals = [&](const auto&) { return Ok(50 + 0.01 * ++n); };
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  auto served = records_->FindBest(space_.program().hash, BenchOf(environment_));
  ASSERT_TRUE(served.ok()) << served.status();
  ASSERT_TRUE(served->has_value());
  EXPECT_EQ((*served)->trial.point, report->best->point);
}

TEST_F(SessionTest, WithoutFinalsTheBestIsKnownButNotServed) {
  options_.finals = false;
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->best.has_value());
  EXPECT_FALSE(report->best->is_final);
  EXPECT_TRUE(measurer_.finalists.empty());
}

// ------------------------------------------------------------------------------------ proposals

TEST_F(SessionTest, RandomProposalsAreReproducibleAndNew) {
  auto a = MakeRandomProposer(space_, 7)->Propose(50, [](const Point&) { return false; });
  auto b = MakeRandomProposer(space_, 7)->Propose(50, [](const Point&) { return false; });
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.size(), 50u);
  auto c = MakeRandomProposer(space_, 7)->Propose(
      50, [&](const Point& p) { return std::find(a.begin(), a.end(), p) != a.end(); });
  for (const Point& p : c) EXPECT_EQ(std::count(a.begin(), a.end(), p), 0);
  EXPECT_TRUE(MakeRandomProposer(space_, 7)->Propose(5, [](const Point&) { return true; }).empty());
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
