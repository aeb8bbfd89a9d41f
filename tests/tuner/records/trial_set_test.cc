#include "tuner/records/transfer/trial_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/str_format.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {
namespace {

using measure::Outcome;
using testing::HasSubstr;

StoredTrial Stored(const std::string& point, double time_us) {
  StoredTrial stored;
  stored.workload.text = "float32 op f(n = 4) {\n  in A[n]\n  out B[i: n] = A[i]\n}\n";
  stored.workload.hash = absl::StrFormat("%016x", HashOf(stored.workload.text));
  stored.workload.op = "f";
  stored.workload.shape = "{\"n\":4}";
  stored.workload.dtype = "float32";
  stored.environment.device_name = "Some GPU, 80GB";
  stored.environment.arch = "sm_90";
  stored.environment.sm_count = 132;
  stored.environment.l2 = measure::L2Policy::kWarm;
  stored.trial.point = point;
  stored.trial.result.outcome = time_us > 0 ? Outcome::kOk : Outcome::kWrongAnswer;
  stored.trial.result.time_us = time_us;
  stored.trial.result.ci_low_us = time_us * 0.99;
  stored.trial.result.ci_high_us = time_us * 1.01;
  stored.trial.when = absl::FromUnixMicros(1700000000000000);
  return stored;
}

TEST(TrialSetTest, KeepsEveryPointWithItsFirstResult) {
  std::stringstream lines, text;
  StoredTrial rough = Stored("stream: threads=64 vector=1", 20);
  rough.trial.result.noisy = rough.trial.result.screened_out = true;
  StoredTrial final = Stored("tile: i.tile=8", 5);
  final.trial.stage = TrialStage::kFinal;
  for (const StoredTrial& s : {Stored("tile: i.tile=8", 12.5), rough, Stored("tile: i.tile=8", 99),
                               final, Stored("tile: i.tile=4", 0)}) {
    lines << PrintLine(s) << "\n";
  }
  auto written = WriteTrialSets(lines, text);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, 3);
  auto sets = ReadTrialSets(text);
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->size(), 1u);
  const TrialSet& set = sets->front();
  EXPECT_EQ(set.workload, rough.workload.text);
  EXPECT_EQ(set.environment.device_name, "Some GPU, 80GB");
  EXPECT_EQ(set.environment.sm_count, 132);
  EXPECT_EQ(set.environment.l2, measure::L2Policy::kWarm);
  ASSERT_EQ(set.trials.size(), 3u);
  EXPECT_EQ(set.trials[0].point, "stream: threads=64 vector=1");
  EXPECT_TRUE(set.trials[0].result.noisy);
  EXPECT_TRUE(set.trials[0].result.screened_out);
  EXPECT_EQ(set.trials[1].point, "tile: i.tile=8");
  EXPECT_EQ(set.trials[1].result.time_us, 12.5);
  EXPECT_NEAR(set.trials[1].result.ci_high_us, 12.625, 1e-6);
  EXPECT_FALSE(set.trials[1].result.noisy);
  EXPECT_EQ(set.trials[2].result.outcome, Outcome::kWrongAnswer);
}

TEST(TrialSetTest, SaysWhichLineIsWrongAndWhatWasExpected) {
  auto error = [](const std::string& text) {
    std::istringstream in(text);
    return std::string(ReadTrialSets(in).status().message());
  };
  const std::string begin =
      "heddle-trials 1\nenvironment device_name=x|arch=sm_90|sm_count=1|generator_version=1|"
      "feature_version=1|l2=cold\nworkload w\n";
  EXPECT_EQ(error(begin + "holes tile a b\n12 1 - 8 4\n"), "");
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error("something\n"), HasSubstr("line 1: expected 'heddle-trials 1'"));
  EXPECT_THAT(error("heddle-trials 1\nenvironment l2=hot\n"), HasSubstr("line 2"));
  EXPECT_THAT(error(begin + "12 1 - 8\n"), HasSubstr("line 4"));
  EXPECT_THAT(error(begin + "holes tile a b\n12 1 - 8\n"), HasSubstr("a result and 2 values"));
  EXPECT_THAT(error(begin + "holes tile a b\n-1 1 - 8 4\n"), HasSubstr("line 5"));
  EXPECT_THAT(error(begin + "holes tile a b\nBROKEN 8 4\n"), HasSubstr("line 5"));
}

TEST(TrialSetTest, OnlyTrialsAreConverted) {
  std::istringstream lines("{\"a\":1}\n");
  std::ostringstream out;
  EXPECT_THAT(std::string(WriteTrialSets(lines, out).status().message()), HasSubstr("line 1"));
}

}  // namespace
}  // namespace heddle::tuner
