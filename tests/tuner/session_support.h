// What the tests of sessions share: a space, a database and a measurer that answers from a script.
#ifndef HEDDLE_TESTS_TUNER_SESSION_SUPPORT_H_
#define HEDDLE_TESTS_TUNER_SESSION_SUPPORT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "search_space/notation/notation.h"
#include "tests/process.h"
#include "tuner/search/session.h"

namespace heddle::tuner {

using measure::Measured;
using measure::Outcome;
using measure::TrialResult;
using search_space::SearchSpace;
using search_space::Step;

inline TrialResult Ok(double time_us) {
  TrialResult r;
  r.outcome = Outcome::kOk;
  r.time_us = time_us;
  r.ci_low_us = time_us * 0.99;
  r.ci_high_us = time_us * 1.01;
  return r;
}
inline TrialResult Failed(Outcome outcome, const std::string& detail) {
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
  absl::Status start;  // the device's
  absl::Status error;  // of Next, once `fail_after` results were given
  int fail_after = 1 << 30;
  int wanted = 4;               // in flight
  double naive = 0;             // microseconds of the naive program
  bool endless_finals = false;  // until they are stopped
  absl::Notification stopped;

  absl::Status AwaitDevice() override {
    submitted_before_start = static_cast<int>(submitted.size());
    return start;
  }
  void Submit(measure::Candidate candidate) override {
    queue_.push_back(candidate.id);
    submitted.push_back(candidate.steps);
    points.push_back(candidate.point);
    most_pending = std::max(most_pending, pending());
  }
  int pending() const override { return static_cast<int>(queue_.size()); }
  int wanted_in_flight() const override { return wanted; }
  double naive_us() const override { return naive; }
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
  int given = 0, most_pending = 0, submitted_before_start = 0;

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

}  // namespace heddle::tuner

#endif  // HEDDLE_TESTS_TUNER_SESSION_SUPPORT_H_
