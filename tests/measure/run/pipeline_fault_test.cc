// Faults that a scripted device has: each costs one trial with the right outcome, and the next
// candidate is measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "measure/judge/criteria.h"
#include "measure/run/detect.h"
#include "measure/run/processes/kept_processes.h"
#include "measure/run/processes/processes.h"
#include "search_space/schedule/step.h"
#include "tests/measure/pipeline_support.h"
#include "tests/support.h"

namespace heddle::measure::pipeline_fault_test {
namespace {

class ScriptedFaultTest : public PipelineTest {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    HEDDLE_NEEDS("pocl", FindDevice("opencl:0").ok(), "there is no OpenCL device");
  }
};

std::vector<Step> Marked(const std::string& mark) {
  return Body(absl::StrCat("/* mark ", mark, " */ ", kRight));
}

std::string Rule(const std::string& fault) {
  return absl::StrCat("{\"match\": \"mark ", fault, " \", \"do\": \"", fault, "\"}");
}

TEST_F(ScriptedFaultTest, EachCostsOneTrial) {
  options_.compile_limit = absl::Seconds(10);
  std::string rules = R"({"match": "mark fast ", "time_us": 0.000001},
                          {"match": "variant", "time_us": 500})";
  const std::vector<std::pair<std::string, Outcome>> faults = {
      {"build_error", Outcome::kBuildError},   {"build_hang", Outcome::kBuildTimeout},
      {"build_crash", Outcome::kBuildError},   {"load_error", Outcome::kLaunchError},
      {"launch_error", Outcome::kLaunchError}, {"illegal_access", Outcome::kIllegalAccess},
      {"hang", Outcome::kRunTimeout},          {"crash", Outcome::kIllegalAccess},
      {"exit", Outcome::kWorkerLost},          {"wrong", Outcome::kWrongAnswer},
  };
  for (const auto& [fault, outcome] : faults) absl::StrAppend(&rules, ", ", Rule(fault));
  Script(rules);
  absl::Status started = Start("fake:0");
  ASSERT_TRUE(started.ok()) << started;
  for (const auto& [fault, outcome] : faults) {
    SCOPED_TRACE(fault);
    ExpectCostsOneTrial(Marked(fault), outcome);
  }
  ExpectCostsOneTrial(Marked("fast"), Outcome::kImplausible, "at least");
  EXPECT_FALSE(after_.screened_out) << "by a time that is not possible";
}

TEST_F(ScriptedFaultTest, TellsWhyTheDeviceWaited) {
  // Enough for a compiler that starts anew on a machine with other work.
  options_.compile_limit = absl::Seconds(8);
  options_.compile_workers = 1;
  Script(Rule("build_hang") + ", " + Rule("hang"));
  const absl::Time start = absl::Now();
  ASSERT_TRUE(Start("fake:0").ok());
  absl::SleepFor(absl::Seconds(0.3));
  const DeviceWaits before = measurer_->device_waits();
  EXPECT_EQ(before.for_compilers_s, 0);
  EXPECT_GE(before.for_candidates_s, 0.2);
  Run({Marked("build_hang")});
  const DeviceWaits compiled = measurer_->device_waits();
  EXPECT_GE(compiled.for_compilers_s, 8);
  // One that does not return keeps the device busy until it is ended, and says so.
  const TrialResult hung = Run({Marked("hang")})[0];
  EXPECT_EQ(hung.outcome, Outcome::kRunTimeout);
  const double busy = hung.load_s + hung.validate_s + hung.time_s;
  EXPECT_GE(busy, absl::ToDoubleSeconds(options_.validate_limit));
  const DeviceWaits after = measurer_->device_waits();
  EXPECT_LE(busy + after.for_compilers_s + after.for_candidates_s,
            absl::ToDoubleSeconds(absl::Now() - start));
}

TEST_F(ScriptedFaultTest, ADeviceThatFailsItsCanaryIsNotUsed) {
  Script(R"({"match": "naive", "do": "wrong"})");
  absl::Status started = Start("fake:0");
  EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
  EXPECT_THAT(std::string(started.message()), HasSubstr("naive program is wrong"));
}

TEST_F(ScriptedFaultTest, WhyADeviceDoesNotStartIsToldToWhoeverAsks) {
  Script(R"({"match": "naive", "do": "wrong"})");
  options_.await_device = false;
  ASSERT_EQ(Start("fake:0"), absl::OkStatus());
  measurer_->Submit({1, "", Right(1)});
  const absl::Status why = measurer_->AwaitDevice();
  EXPECT_TRUE(absl::IsFailedPrecondition(why)) << why;
  EXPECT_EQ(measurer_->AwaitDevice(), why);
  EXPECT_EQ(measurer_->Next(absl::Seconds(60)).status(), why);
  EXPECT_EQ(measurer_->naive_us(), 0);
}

// The next workload may do better, and nobody else gets the device before it.
TEST_F(ScriptedFaultTest, AFailedStartLeavesWhatItHadToTheNext) {
  Script(R"({"match": "naive", "do": "wrong"})");
  KeptProcesses kept;
  options_.kept = &kept;
  for (const bool await : {true, false}) {
    options_.await_device = await;
    EXPECT_EQ(Start("fake:0").ok(), !await);
    if (!await) {
      measurer_->Submit({1, "", Right(1)});
      EXPECT_FALSE(measurer_->AwaitDevice().ok());
      measurer_.reset();
    }
    auto processes = kept.Take("fake:0", options_.compile_workers);
    ASSERT_NE(processes, nullptr) << await;
    EXPECT_TRUE(processes->lock.has_value());
    kept.Keep(std::move(processes));
  }
}

TEST_F(ScriptedFaultTest, AClockThatIsTooFastIsTheDevicesFault) {
  Script(R"({"match": "naive", "time_us": 0.000001})");
  absl::Status started = Start("fake:0");
  EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
  EXPECT_THAT(std::string(started.message()), HasSubstr("clock"));
}

TEST_F(ScriptedFaultTest, AWorkerThatDiesOnItsCanaryIsReportedWithItsEnd) {
  Script(R"({"match": "naive", "do": "crash"})");
  absl::Status started = Start("fake:0");
  EXPECT_TRUE(absl::IsUnavailable(started)) << started;
  EXPECT_THAT(std::string(started.message()), HasSubstr("signal 11"));
}

TEST_F(ScriptedFaultTest, ADeviceThatBreaksLaterBlamesNoCandidate) {
  Script(Rule("crash"));
  ASSERT_TRUE(Start("fake:0").ok());
  // The one that kills the worker comes last.
  EXPECT_EQ(Run({Right(1)})[0].outcome, Outcome::kOk);
  EXPECT_EQ(Run({Marked("crash")})[0].outcome, Outcome::kIllegalAccess);
  // The next worker finds another device.
  Script(R"({"match": "naive", "do": "wrong"})");
  measurer_->Submit({7, "", Right(2)});
  auto next = measurer_->Next(absl::Seconds(60));
  EXPECT_TRUE(absl::IsUnavailable(next.status())) << next.status();
  EXPECT_EQ(measurer_->pending(), 1);
}

TEST_F(ScriptedFaultTest, WhatIsFarSlowerThanTheBestIsDroppedAfterItsFirstSample) {
  Script(R"({"match": "mark slow ", "time_us": 50000}, {"match": "B", "time_us": 500})");
  ASSERT_TRUE(Start("fake:0").ok());
  auto results = Run({Marked("usual")});
  EXPECT_FALSE(results[0].screened_out);
  EXPECT_NEAR(results[0].time_us, 500, 1);
  results = Run({Marked("slow")});
  EXPECT_EQ(results[0].outcome, Outcome::kOk) << results[0].detail;
  EXPECT_TRUE(results[0].screened_out);
  EXPECT_EQ(results[0].samples, 1);
}

// One that is right by chance on the inputs that it was chosen on.
TEST_F(ScriptedFaultTest, FinalistsAreValidatedOnOtherInputs) {
  Script(R"({"time_us": 500})");
  ASSERT_TRUE(Start("fake:0").ok());
  const float other = InputValue(options_.seed + 1, 0, 0, InputKind::kUniform);
  const auto lucky =
      Body(absl::StrFormat("%s if (A[0] == %.9gf) B[i] = 0.0f;", std::string(kRight), other));
  EXPECT_EQ(Run({lucky})[0].outcome, Outcome::kOk);
  auto finals =
      measurer_->MeasureFinalists(CandidatesOf({lucky, Right(1)}), absl::Milliseconds(50));
  ASSERT_TRUE(finals.ok()) << finals.status();
  EXPECT_EQ((*finals)[0].outcome, Outcome::kWrongAnswer) << (*finals)[0].detail;
  EXPECT_EQ((*finals)[1].outcome, Outcome::kOk) << (*finals)[1].detail;
}

// What one finalist's end does to the others: they are finals all the same, on other inputs and in
// as many rounds.
TEST_F(ScriptedFaultTest, FinalistsThatLoseTheirWorkerToAnotherAreFinals) {
  Script(absl::StrCat(Rule("crash"), R"(, {"time_us": 500})"));
  ASSERT_TRUE(Start("fake:0").ok());
  const float other = InputValue(options_.seed + 1, 0, 0, InputKind::kUniform);
  const auto lucky =
      Body(absl::StrFormat("%s if (A[0] == %.9gf) B[i] = 0.0f;", std::string(kRight), other));
  auto finals = measurer_->MeasureFinalists(
      CandidatesOf({Right(1), Marked("crash"), lucky, Right(2)}), absl::Seconds(10));
  ASSERT_TRUE(finals.ok()) << finals.status();
  EXPECT_EQ((*finals)[1].outcome, Outcome::kIllegalAccess) << (*finals)[1].detail;
  EXPECT_EQ((*finals)[2].outcome, Outcome::kWrongAnswer) << (*finals)[2].detail;
  for (int i : {0, 3}) {
    EXPECT_EQ((*finals)[i].outcome, Outcome::kOk) << (*finals)[i].detail;
    EXPECT_GE((*finals)[i].samples, 20);
  }
  // In turns: alone, each would have had a tenth of a second of its own.
  EXPECT_NEAR((*finals)[0].samples, 100, 10);
  EXPECT_EQ((*finals)[0].samples, (*finals)[3].samples);
}

}  // namespace
}  // namespace heddle::measure::pipeline_fault_test
