// What is served of all that was measured: the newest final of each schedule, where it may be
// believed, in a time that does not depend on how many there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "tests/tuner/records_support.h"
#include "tuner/records/records.h"
namespace heddle::tuner {
namespace {

using testing::HasSubstr;

class RecordsServingTest : public RecordsFixture {};

TEST_F(RecordsServingTest, ServesTheFastestFinalThatIsValid) {
  auto records = MustOpen();
  Add(*records, FinalOf("1", 20));
  Add(*records, FinalOf("2", 10));
  TrialRecord screening = FinalOf("3", 1);
  screening.stage = TrialStage::kScreening;
  Add(*records, screening);
  TrialRecord dropped = FinalOf("4", 2);
  dropped.result.screened_out = true;
  Add(*records, dropped);
  Add(*records, Failed(FinalOf("5", 3), measure::Outcome::kWrongAnswer));
  EXPECT_EQ(BestTime(*records), 10);
  Bench other = BenchOf(environment_);
  other.l2 = measure::L2Policy::kWarm;
  EXPECT_FALSE(records->FindBest(program_.hash, other)->has_value());
  EXPECT_FALSE(records->FindBest(program_.hash, {"Other"})->has_value());
  EXPECT_FALSE(records->FindBest("0", BenchOf(environment_))->has_value());
}

TEST_F(RecordsServingTest, AScheduleThatFailsLaterIsWithdrawn) {
  auto records = MustOpen();
  Add(*records, FinalOf("s", 10));
  Add(*records, FinalOf("t", 12));
  EXPECT_EQ(BestTime(*records), 10);
  Add(*records, Failed(FinalOf("s", 0), measure::Outcome::kWrongAnswer));
  EXPECT_EQ(BestTime(*records), 12);
  // The same steps, edited by hand as far as anybody knows.
  TrialRecord by_hand = Failed(FinalOf("t", 0), measure::Outcome::kIllegalAccess);
  by_hand.point.clear();
  Add(*records, by_hand);
  EXPECT_EQ(BestTime(*records), 0);
  // Right again; a worker that is lost for another reason says nothing.
  Add(*records, FinalOf("s", 11));
  Add(*records, Failed(FinalOf("s", 0), measure::Outcome::kWorkerLost));
  EXPECT_EQ(BestTime(*records), 11);
}

// A search that tries a schedule again and finds it wrong says so in its screening, which has no
// steps; how fast a screening was says nothing.
TEST_F(RecordsServingTest, AScreeningThatFindsAScheduleWrongWithdrawsIt) {
  auto records = MustOpen();
  const Environment cold = environment_;
  Environment warm = cold;
  warm.l2 = measure::L2Policy::kWarm;
  TrialRecord screening = FinalOf("s", 50);
  screening.stage = TrialStage::kScreening;
  screening.steps.clear();
  const auto add = [&](const Environment& where, const TrialRecord& trial) {
    environment_ = where;
    Add(*records, trial);
    environment_ = cold;
    return BestTime(*records);
  };
  EXPECT_EQ(add(cold, FinalOf("s", 10)), 10);
  EXPECT_EQ(add(cold, screening), 10);
  EXPECT_EQ(add(cold, Failed(screening, measure::Outcome::kRunTimeout)), 10);
  EXPECT_EQ(add(cold, Failed(screening, measure::Outcome::kWrongAnswer)), 0);
  EXPECT_EQ(Query("SELECT count(*) FROM trial WHERE steps IS NULL AND speaks = 1"), "1");
  EXPECT_EQ(add(cold, FinalOf("s", 11)), 11);
  // Quarantined: nobody knows whether it was to blame for the workers that were lost.
  TrialRecord lost = Failed(screening, measure::Outcome::kIllegalAccess);
  EXPECT_EQ(add(cold, lost), 11);
  lost.result.source_hash = "5eed";
  EXPECT_EQ(add(warm, lost), 0);
  EXPECT_EQ(add(warm, FinalOf("s", 5)), 11);
  // The same steps, edited by hand as far as anybody knows.
  TrialRecord by_hand = FinalOf("s", 12);
  by_hand.point.clear();
  EXPECT_EQ(add(cold, by_hand), 12);
  TrialRecord wrong = Failed(screening, measure::Outcome::kWrongAnswer);
  wrong.steps = by_hand.steps;
  EXPECT_EQ(add(cold, wrong), 0);
}

// A bench that does not know its memory and its power, as those of old databases, agrees with any:
// what is found there later counts for both, and the other way round.
TEST_F(RecordsServingTest, WhatABenchThatAgreesHasFoundLaterCounts) {
  auto records = MustOpen();
  const Environment old = environment_;
  Environment now = old;
  now.memory_mib = 81559;
  now.power_limit_w = 700;
  const auto add = [&](const Environment& where, const TrialRecord& trial) {
    environment_ = where;
    Add(*records, trial);
  };
  const auto best = [&](const Environment& where) {
    environment_ = where;
    return BestTime(*records);
  };
  add(old, FinalOf("s", 10));
  add(old, FinalOf("t", 12));
  EXPECT_EQ(best(now), 10);
  add(now, Failed(FinalOf("s", 0), measure::Outcome::kWrongAnswer));
  EXPECT_EQ(best(now), 12);
  EXPECT_EQ(best(old), 12);
  // The same steps, edited by hand as far as anybody knows; the luckiest of two is not the last.
  TrialRecord by_hand = FinalOf("t", 14);
  by_hand.point.clear();
  add(now, by_hand);
  EXPECT_EQ(best(now), 14);
  // Under another limit of power it takes its time, and is wrong all the same.
  Environment slow = now;
  slow.power_limit_w = 350;
  add(slow, FinalOf("t", 20));
  EXPECT_EQ(best(now), 14);
  add(slow, Failed(FinalOf("t", 0), measure::Outcome::kWrongAnswer));
  EXPECT_EQ(best(old), 0);
  // Right again.
  add(old, FinalOf("t", 13));
  EXPECT_EQ(best(old), 13);
}

// Limits of power do not compare, but what is wrong under one is wrong under the other, as long as
// that is the last word there. Another size of the device has its own.
TEST_F(RecordsServingTest, WhatIsWrongUnderAnotherLimitOfPowerIsWithdrawn) {
  auto records = MustOpen();
  environment_.memory_mib = 81559;
  environment_.power_limit_w = 700;
  const Environment fast = environment_;
  Environment slow = fast, smaller = fast;
  slow.power_limit_w = 350;
  smaller.sm_count = 64;
  const auto add = [&](const Environment& where, const TrialRecord& trial) {
    environment_ = where;
    Add(*records, trial);
    environment_ = fast;
    return BestTime(*records);
  };
  EXPECT_EQ(add(fast, FinalOf("s", 10)), 10);
  EXPECT_EQ(add(slow, FinalOf("s", 20)), 10);
  EXPECT_EQ(add(slow, Failed(FinalOf("s", 0), measure::Outcome::kRunTimeout)), 10);
  EXPECT_EQ(add(smaller, Failed(FinalOf("s", 0), measure::Outcome::kWrongAnswer)), 10);
  EXPECT_EQ(add(slow, Failed(FinalOf("s", 0), measure::Outcome::kWrongAnswer)), 0);
  EXPECT_EQ(add(slow, FinalOf("s", 20)), 10);
}

// Wrong is wrong, however it was timed; a time limit says nothing of another policy's times.
TEST_F(RecordsServingTest, WhatIsWrongUnderTheOtherPolicyIsWithdrawn) {
  auto records = MustOpen();
  const Environment cold = environment_;
  Environment warm = cold;
  warm.l2 = measure::L2Policy::kWarm;
  ASSERT_NE(cold.l2, warm.l2);
  const auto add = [&](const Environment& where, const TrialRecord& trial) {
    environment_ = where;
    Add(*records, trial);
    environment_ = cold;
    return BestTime(*records);
  };
  EXPECT_EQ(add(cold, FinalOf("s", 10)), 10);
  EXPECT_EQ(add(warm, Failed(FinalOf("s", 0), measure::Outcome::kRunTimeout)), 10);
  EXPECT_EQ(add(warm, Failed(FinalOf("s", 0), measure::Outcome::kWrongAnswer)), 0);
  EXPECT_EQ(add(warm, FinalOf("s", 5)), 10);
}

TEST_F(RecordsServingTest, OfASchedulesFinalsTheNewestCounts) {
  auto records = MustOpen();
  Add(*records, FinalOf("s", 10));
  Add(*records, FinalOf("s", 14));
  Add(*records, FinalOf("t", 12));
  EXPECT_EQ(BestTime(*records), 12);
  // The newest by the order in which they came: clocks jump.
  TrialRecord later = FinalOf("t", 15);
  later.when = absl::FromUnixSeconds(1);
  Add(*records, later);
  EXPECT_EQ(BestTime(*records), 14);
}

TEST_F(RecordsServingTest, WhatIsRemovedNoLongerCounts) {
  auto records = MustOpen();
  Add(*records, FinalOf("s", 10));
  Add(*records, Failed(FinalOf("s", 0), measure::Outcome::kWrongAnswer));
  EXPECT_EQ(BestTime(*records), 0);
  ASSERT_TRUE(records->database().Run("DELETE FROM trial WHERE outcome <> 'OK'").ok());
  EXPECT_EQ(BestTime(*records), 10);
  ASSERT_TRUE(records->database().Run("DELETE FROM trial").ok());
  EXPECT_EQ(BestTime(*records), 0);
  EXPECT_EQ(Query("SELECT count(*) FROM served"), "0");
}

TEST_F(RecordsServingTest, WhatIsImportedNeitherServesNorWithdraws) {
  auto theirs = MustOpen();
  Add(*theirs, FinalOf("s", 1));
  Add(*theirs, Failed(FinalOf("t", 0), measure::Outcome::kWrongAnswer));
  std::stringstream lines;
  ASSERT_TRUE(theirs->Export(lines).ok());
  path_ = folder_ + "/ours.db";
  auto records = MustOpen();
  Add(*records, FinalOf("t", 12));
  auto report = records->Import(lines);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->added, 2);
  EXPECT_EQ(BestTime(*records), 12);
}

TEST_F(RecordsServingTest, TimesThatCannotBeTrueAreNotImported) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  auto program =
      op->Instantiate({{"m", 1024}, {"n", 1024}, {"k", 1024}}, search_space::DType::kFloat32);
  ASSERT_TRUE(program.ok());
  StoredTrial stored{{program->hash, "matmul", R"({"k":1024,"m":1024,"n":1024})", "float32",
                      program->canonical_text},
                     environment_,
                     Final(0)};
  stored.trial.when = absl::FromUnixSeconds(1);
  std::stringstream lines;
  const auto add = [&](const std::string& device, double time_us) {
    stored.environment.device_name = device;
    stored.trial.result.time_us = time_us;
    lines << PrintLine(stored) << '\n';
  };
  add("NVIDIA H100 80GB HBM3", 1e-4);
  add("NVIDIA H100 80GB HBM3", 20);  // 107 TFLOP/s
  add("NVIDIA H100 80GB HBM3", 60);
  add("no GPU that we know", 1e-4);
  add("no GPU that we know", 20);
  auto report = MustOpen()->Import(lines);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->added, 2);
  EXPECT_THAT(report->rejected,
              testing::ElementsAre(HasSubstr("line 1: \"trial.time_us\" is 0.0001"),
                                   HasSubstr("line 2: "), HasSubstr("line 4: ")));
}

TEST_F(RecordsServingTest, ImportsKeepWhereTheyComeFrom) {
  auto theirs = MustOpen();
  TrialRecord trial = FinalOf("s", 10);
  trial.from = {"theirs", 7, "loom-1", "job-3"};
  Add(*theirs, trial);
  std::stringstream lines;
  ASSERT_TRUE(theirs->Export(lines).ok());
  EXPECT_THAT(lines.str(), testing::AllOf(HasSubstr("loom-1"), HasSubstr("job-3"),
                                          testing::Not(HasSubstr("theirs"))));
  path_ = folder_ + "/ours.db";
  auto records = MustOpen();
  ASSERT_TRUE(records->Import(lines, {"weavers", 2, "not the importer's host", ""}).ok());
  int64_t after = 0;
  auto page = records->ReadPage(after, 2);
  ASSERT_TRUE(page.ok() && page->size() == 1) << page.status();
  EXPECT_EQ(page->at(0).trial.from, (Provenance{"weavers", 2, "loom-1", "job-3"}));
  EXPECT_THAT(*records->ImportedPoints(program_, environment_, 4),
              testing::ElementsAre(trial.point));
}

// Whatever is added and removed, `served` is what its definition says.
TEST_F(RecordsServingTest, ServedIsWhatMayBeServed) {
  auto records = MustOpen();
  std::mt19937 rng(11);
  const auto any = [&](int count) { return static_cast<int>(rng() % count); };
  for (int round = 0; round < 30; ++round) {
    ASSERT_TRUE(records
                    ->Batch([&] {
                      for (int i = 0; i < 20; ++i) {
                        if (any(4) == 0) {
                          return records->database().Run("DELETE FROM trial WHERE id % 7 = ?",
                                                         any(7));
                        }
                        program_ = Program(32 * (1 + any(2)));
                        TrialRecord trial = FinalOf(absl::StrCat(any(4)), 10 + any(3));
                        if (any(3) == 0) trial.point = any(2) == 0 ? "" : "tile: 1";
                        if (any(4) == 0) trial.stage = TrialStage::kScreening;
                        if (any(5) == 0) trial = Failed(trial, measure::Outcome::kWrongAnswer);
                        if (any(5) == 0) trial = Failed(trial, measure::Outcome::kWorkerLost);
                        if (any(3) > 0) trial.from.host = absl::StrCat("host", any(3));
                        Add(*records, trial);
                      }
                      return absl::OkStatus();
                    })
                    .ok());
    ASSERT_EQ(Query("SELECT * FROM served EXCEPT SELECT * FROM servable"), "") << round;
    ASSERT_EQ(Query("SELECT * FROM servable EXCEPT SELECT * FROM served"), "") << round;
  }
  EXPECT_NE(Query("SELECT count(*) FROM served"), "0");
}

// Everything that was asked for and nothing else, however many ids lie between.
TEST_F(RecordsServingTest, PagesOfAChoiceHaveAllOfIt) {
  auto records = MustOpen();
  std::vector<int64_t> wanted;
  for (int i = 0; i < 6; ++i) {
    TrialRecord trial = i % 2 == 0 ? FinalOf(absl::StrCat("s", i), 10) : Screening(absl::StrCat(i));
    trial.from.tenant = i < 4 ? "a" : "b";
    Add(*records, trial);
    if (i == 0 || i == 2) wanted.push_back(std::stoll(Query("SELECT max(id) FROM trial")));
  }
  // Far from the others, as after many that were removed.
  ASSERT_TRUE(records->database()
                  .Run("UPDATE trial SET id = ? WHERE id = (SELECT max(id) FROM trial)",
                       3 * Records::kMaxLook)
                  .ok());
  const auto read = [&](const Records::Choice& choice) {
    std::vector<int64_t> ids;
    int64_t after = 0;
    bool more = true;
    while (more) {
      auto page = records->ReadPage(after, 1, choice, more);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) break;
      for (const StoredTrial& stored : *page) ids.push_back(stored.trial.id);
    }
    return ids;
  };
  EXPECT_EQ(read({.tenant = "a", .finals_only = true}), wanted);
  EXPECT_EQ(read({}).size(), 6U);
  EXPECT_EQ(read({}).back(), 3 * Records::kMaxLook);
  EXPECT_EQ(read({.op = program_.op, .device_name = environment_.device_name}).size(), 6U);
  EXPECT_TRUE(read({.op = "none"}).empty());
  EXPECT_TRUE(read({.device_name = "none"}).empty());
}

TEST_F(RecordsServingTest, DevicesOfAnotherSizeServeNothing) {
  auto records = MustOpen();
  environment_.memory_mib = 81559;
  environment_.power_limit_w = 700;
  const Environment h100 = environment_;
  Add(*records, Final(10));
  environment_.sm_count = 64;
  EXPECT_EQ(BestTime(*records), 0);
  Add(*records, Final(30));
  EXPECT_EQ(BestTime(*records), 30);
  EXPECT_EQ(records->Trials(program_, environment_)->size(), 1);
  EXPECT_EQ(records->CountLessons(environment_, 0)->trials, 1);
  environment_ = h100;
  environment_.power_limit_w = 350;
  EXPECT_EQ(BestTime(*records), 0);
  environment_ = h100;
  environment_.memory_mib = 40960;
  EXPECT_EQ(BestTime(*records), 0);
  // Another driver keeps a little more of the memory for itself.
  environment_.memory_mib = 81089;
  EXPECT_EQ(BestTime(*records), 10);
  // What is not known is no reason.
  environment_.memory_mib = environment_.power_limit_w = 0;
  EXPECT_EQ(BestTime(*records), 10);
  EXPECT_EQ(records->Trials(program_, environment_)->size(), 1);
}

// The work of a look-up is the same whether there are some finals or thousands, ties included.
TEST_F(RecordsServingTest, TheBestOfThousandsCostsNoMore) {
  auto records = MustOpen();
  const auto steps = [&] {
    int64_t sum = 0;
    sqlite3* handle = records->database().handle();
    for (sqlite3_stmt* s = nullptr; (s = sqlite3_next_stmt(handle, s)) != nullptr;) {
      sum += sqlite3_stmt_status(s, SQLITE_STMTSTATUS_VM_STEP, 0);
      EXPECT_TRUE(std::string(sqlite3_sql(s)).find("served") == std::string::npos ||
                  sqlite3_stmt_status(s, SQLITE_STMTSTATUS_FULLSCAN_STEP, 0) == 0);
    }
    return sum;
  };
  const auto fill = [&](int from, int to) {
    ASSERT_TRUE(records
                    ->Batch([&] {
                      for (int i = from; i < to; ++i) {
                        TrialRecord trial = FinalOf(absl::StrCat(i), 10 + i * 1e-5);
                        trial.result.ci_low_us = 9;
                        trial.result.ci_high_us = 11;
                        Add(*records, trial);
                      }
                      return absl::OkStatus();
                    })
                    .ok());
  };
  fill(0, 20);
  int64_t before = steps();
  EXPECT_EQ(BestTime(*records), 10);
  const int64_t few = steps() - before;
  EXPECT_LT(few, 2000);
  fill(20, 5000);
  before = steps();
  EXPECT_EQ(BestTime(*records), 10);
  EXPECT_EQ(steps() - before, few);
  // And one more final costs no more than it did.
  before = steps();
  Add(*records, FinalOf("one more", 10));
  EXPECT_LT(steps() - before, 2000);
}

TEST_F(RecordsServingTest, TheBestIsOneSeek) {
  auto records = MustOpen();
  EXPECT_THAT(Plan(SelectServed()),
              testing::AllOf(HasSubstr("SEARCH served USING PRIMARY KEY (workload=? AND bench=?)"),
                             testing::Not(HasSubstr("SCAN")), testing::Not(HasSubstr("B-TREE"))));
  EXPECT_THAT(Plan(SelectHistory()),
              testing::AllOf(HasSubstr("USING INDEX trial_history (workload=? AND bench=?)"),
                             testing::Not(HasSubstr("SCAN")), testing::Not(HasSubstr("B-TREE"))));
  EXPECT_THAT(Plan(SelectLaterElsewhere()),
              testing::AllOf(HasSubstr("USING INDEX trial_word_steps"),
                             HasSubstr("USING INDEX trial_word_point"),
                             testing::Not(testing::ContainsRegex("SCAN [a-z]"))));
  EXPECT_THAT(Plan(SelectWorkload()), HasSubstr("USING INDEX workload_hash (hash=?)"));
  EXPECT_THAT(Plan(SelectSame()), HasSubstr("USING INDEX trial_history (workload=? AND bench=? AND "
                                            "when_us=?"));
  EXPECT_THAT(Plan(SelectNeighbours()),
              HasSubstr("SEARCH v USING PRIMARY KEY (workload=? AND bench=?)"));
  EXPECT_THAT(Plan(SelectBenches()), testing::Not(HasSubstr("SCAN")));
}

}  // namespace
}  // namespace heddle::tuner
