#include "tuner/records/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "tests/tuner/records_support.h"

namespace heddle::tuner {
namespace {

class RecordsTest : public RecordsFixture {};

TEST_F(RecordsTest, AFinalComesBackAsItWentIn) {
  auto records = MustOpen();
  TrialRecord trial = Final(12.5);
  trial.result.detail = "what the compiler said\xff";
  trial.result.noisy = true;
  trial.result.max_error = 0.25;
  trial.result.ci_low_us = 12.25;
  trial.result.registers = 128;
  trial.result.source_hash = "abc";
  trial.result.compile_s = 0.5;
  trial.throttled = true;
  trial.other_processes = 2;
  trial.when = absl::FromUnixMicros(1234567890123456);
  trial.from = {"weavers", 3, "host-1", "job-7"};
  environment_.memory_mib = 81920;
  environment_.power_limit_w = 700;
  ASSERT_TRUE(records->AddTrial(program_, environment_, trial).ok());

  auto best = records->FindBest(program_.hash, BenchOf(environment_));
  ASSERT_TRUE(best.ok()) << best.status();
  ASSERT_TRUE(best->has_value());
  const TrialRecord& got = (*best)->trial;
  EXPECT_EQ(got.workload_hash, program_.hash);
  EXPECT_EQ(got.point, trial.point);
  EXPECT_EQ(got.steps, trial.steps);
  EXPECT_EQ(got.stage, TrialStage::kFinal);
  EXPECT_EQ(got.origin, Origin::kMeasured);
  EXPECT_EQ(got.result.detail, trial.result.detail);
  EXPECT_EQ(got.result.time_us, 12.5);
  EXPECT_EQ(got.result.ci_low_us, 12.25);
  EXPECT_EQ(got.result.max_error, 0.25);
  EXPECT_EQ(got.result.registers, 128);
  EXPECT_EQ(got.result.source_hash, "abc");
  EXPECT_EQ(got.result.compile_s, 0.5);
  EXPECT_TRUE(got.result.noisy);
  EXPECT_TRUE(got.throttled);
  EXPECT_EQ(got.other_processes, 2);
  EXPECT_EQ(got.when, trial.when);
  EXPECT_EQ((*best)->environment.device_uuid, environment_.device_uuid);
  EXPECT_EQ((*best)->environment.driver, environment_.driver);
  EXPECT_EQ((*best)->environment.sm_count, environment_.sm_count);
  EXPECT_EQ((*best)->environment.memory_mib, 81920);
  EXPECT_EQ((*best)->environment.power_limit_w, 700);
  EXPECT_EQ(got.from, trial.from);
}

TEST_F(RecordsTest, ADamagedRowIsPassedOver) {
  auto records = MustOpen();
  Add(*records, FinalOf("1", 10));
  Add(*records, FinalOf("2", 12));
  Query("UPDATE trial SET registers = 1 WHERE time_us = 10");
  EXPECT_EQ(BestTime(*records), 12);
  Query("UPDATE served SET time_us = 1 WHERE time_us = 12");
  EXPECT_EQ(BestTime(*records), 0);
  for (int i = 3; i < 40; ++i) Add(*records, FinalOf(absl::StrCat(i), 20 + i));
  Query("UPDATE trial SET registers = 1 WHERE time_us < 50");
  EXPECT_EQ(BestTime(*records), 50) << "more of them than are looked at at once";
}

TEST_F(RecordsTest, AnotherDriverIsAnotherEnvironmentOfTheSameDevice) {
  auto records = MustOpen();
  Add(*records, Final(20));
  environment_.driver = "2";
  Add(*records, Final(10));
  auto best = records->FindBest(program_.hash, BenchOf(environment_));
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->environment.driver, "2");
  EXPECT_EQ(records->Trials(program_, environment_)->size(), 2u);
}

TEST_F(RecordsTest, TrialsComeOldestFirstAndSurviveClosing) {
  {
    auto records = MustOpen();
    for (int i : {3, 1, 2}) {
      TrialRecord trial = Screening(absl::StrCat("p", i));
      trial.when = absl::FromUnixSeconds(i);
      Add(*records, trial);
    }
  }
  auto records = MustOpen();
  auto trials = records->Trials(program_, environment_);
  ASSERT_TRUE(trials.ok());
  ASSERT_EQ(trials->size(), 3u);
  EXPECT_EQ((*trials)[0].point, "p1");
  EXPECT_EQ((*trials)[2].point, "p3");
}

TEST_F(RecordsTest, StepsAreKeptOnceAndOnlyWhereNeeded) {
  auto records = MustOpen();
  TrialRecord screening = Screening("p");
  screening.steps = "split(C, i, [4])";
  Add(*records, screening);
  Add(*records, Final(1));
  Add(*records, Final(2));
  TrialRecord by_hand = Screening("");
  by_hand.steps = "split(C, i, [2])";
  Add(*records, by_hand);
  auto trials = records->Trials(program_, environment_);
  EXPECT_EQ((*trials)[0].steps, "");
  EXPECT_EQ((*trials)[3].steps, by_hand.steps);
  EXPECT_EQ(Query("SELECT count(*) FROM steps"), "2");
}

TEST_F(RecordsTest, RefusesWhatIsNoTrial) {
  auto records = MustOpen();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double time : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()}) {
    auto added = records->AddTrial(program_, environment_, Final(time));
    EXPECT_TRUE(absl::IsInvalidArgument(added.status())) << time << " " << added.status();
  }
  TrialRecord nameless = Screening("");
  EXPECT_TRUE(
      absl::IsInvalidArgument(records->AddTrial(program_, environment_, nameless).status()));
  EXPECT_TRUE(records->Trials(program_, environment_)->empty());
}

TEST_F(RecordsTest, AnErrorWithoutBoundAndMinusZeroAreKept) {
  auto records = MustOpen();
  TrialRecord trial = Screening("p");
  trial.result.outcome = measure::Outcome::kWrongAnswer;
  trial.result.time_us = -0.0;
  trial.result.max_error = std::numeric_limits<double>::quiet_NaN();
  Add(*records, trial);
  auto trials = records->Trials(program_, environment_);
  ASSERT_EQ(trials->size(), 1u);
  EXPECT_TRUE(std::isinf((*trials)[0].result.max_error));
}

TEST_F(RecordsTest, FindsNeighboursOfTheSameOperator) {
  auto records = MustOpen();
  Add(*records, Final(1));
  program_ = Program(64);
  Add(*records, Final(1));
  program_ = Program(128);  // without a final: no neighbour
  Add(*records, Screening("p"));
  auto neighbours = records->Neighbours("vector_add", BenchOf(environment_));
  ASSERT_TRUE(neighbours.ok());
  ASSERT_EQ(neighbours->size(), 2u);
  EXPECT_EQ((*neighbours)[1].shape, (std::map<std::string, int64_t>{{"n", 64}}));
  EXPECT_EQ((*neighbours)[1].dtype, "float32");
  EXPECT_TRUE(records->Neighbours("matmul", BenchOf(environment_))->empty());
}

TEST_F(RecordsTest, WhatTwoProcessesDidNotSurviveIsStale) {
  auto records = MustOpen();
  ASSERT_TRUE(records->AddIntent(program_, environment_, "mine").ok());
  const auto lose = [&](const std::vector<std::string>& points) {
    const pid_t child = fork();
    if (child == 0) {
      auto other = Records::Open(path_);
      bool ok = other.ok();
      for (const std::string& point : points) {
        ok = ok && (*other)->AddIntent(program_, environment_, point).ok();
      }
      ok = ok && (*other)->ClearIntent(program_, environment_, "done").ok();
      _exit(ok ? 0 : 1);
    }
    EXPECT_EQ(ExitCode(child), 0);
    return *records->StaleIntents(program_, environment_);
  };
  EXPECT_THAT(lose({"lost", "queued", "done"}), testing::IsEmpty()) << "once may be an accident";
  EXPECT_THAT(lose({"lost", "lost"}), testing::ElementsAre("lost"));
  // A result of the second attempt, and it is as if nothing had been.
  ASSERT_TRUE(records->AddIntent(program_, environment_, "queued").ok());
  EXPECT_THAT(lose({}), testing::ElementsAre("lost")) << "this process is running";
  ASSERT_TRUE(records->ClearIntent(program_, environment_, "queued").ok());
  EXPECT_THAT(lose({"queued"}), testing::ElementsAre("lost"));
}

TEST_F(RecordsTest, TwoProcessesLoseNothing) {
  constexpr int kEach = 100;
  std::vector<pid_t> children;
  for (int c = 0; c < 3; ++c) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    auto records = Records::Open(path_);  // all create the file at once
    absl::Status status = records.status();
    for (int i = 0; status.ok() && i < kEach; ++i) {
      TrialRecord trial = Screening(absl::StrCat(c, ".", i));
      status = (*records)->AddTrial(program_, environment_, trial).status();
    }
    if (!status.ok()) std::cerr << status << std::endl;
    _exit(status.ok() ? 0 : 1);
  }
  for (pid_t child : children) EXPECT_EQ(ExitCode(child), 0);
  auto trials = MustOpen()->Trials(program_, environment_);
  std::set<std::string> points;
  for (const TrialRecord& trial : *trials) points.insert(trial.point);
  EXPECT_EQ(points.size(), 3u * kEach);
  EXPECT_EQ(trials->size(), 3u * kEach);
  EXPECT_EQ(Query("SELECT count(*) FROM workload"), "1");
  EXPECT_EQ(Query("SELECT count(*) FROM environment"), "1");
}

TEST_F(RecordsTest, NoAcknowledgedTrialIsLostToAKill) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto records = Records::Open(path_);
    for (int i = 0; records.ok(); ++i) {
      if (!(*records)->AddTrial(program_, environment_, Screening(absl::StrCat(i))).ok()) _exit(1);
      if (write(pipe_ends[1], &i, sizeof i) != sizeof i) _exit(2);
    }
    _exit(3);
  }
  close(pipe_ends[1]);
  int acknowledged = -1;
  while (acknowledged < 50 && read(pipe_ends[0], &acknowledged, sizeof acknowledged) > 0) continue;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  while (read(pipe_ends[0], &acknowledged, sizeof acknowledged) > 0) continue;
  close(pipe_ends[0]);
  ASSERT_GE(acknowledged, 50);
  auto records = MustOpen();
  EXPECT_EQ(records->damage(), "");
  EXPECT_FALSE(records->read_only());
  EXPECT_GE(records->Trials(program_, environment_)->size(), static_cast<size_t>(acknowledged) + 1);
}

TEST_F(RecordsTest, BackupIsWholeAndOverwritesNothing) {
  auto records = MustOpen();
  Add(*records, Final(7));
  const std::string copy = path_ + ".copy";
  ASSERT_TRUE(records->Backup(copy).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(records->Backup(copy)));
  path_ = copy;
  EXPECT_EQ(BestTime(*MustOpen()), 7);
}

TEST_F(RecordsTest, TheDefaultIsInTheUsersDataFolder) {
  setenv("XDG_DATA_HOME", folder_.c_str(), 1);
  unsetenv("HEDDLE_DB");
  EXPECT_EQ(Records::DefaultPath(), folder_ + "/heddle/heddle.db");
  auto records = Records::Open("");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/heddle/heddle.db"));
  setenv("HEDDLE_DB", "/x/y.db", 1);
  EXPECT_EQ(Records::DefaultPath(), "/x/y.db");
  unsetenv("HEDDLE_DB");
  unsetenv("XDG_DATA_HOME");
  setenv("HOME", "/home/weaver", 1);
  EXPECT_EQ(Records::DefaultPath(), "/home/weaver/.local/share/heddle/heddle.db");
}

TEST_F(RecordsTest, WorkloadsHashAsTheNotationDoes) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  ASSERT_TRUE(op.ok());
  auto program = op->Instantiate({{"m", 3}, {"n", 4}, {"k", 5}}, search_space::DType::kFloat32);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->hash, absl::StrFormat("%016x", HashOf(program->canonical_text)));
}

TEST_F(RecordsTest, ABatchIsAllOrNothing) {
  auto records = MustOpen();
  auto add_two = [&](const absl::Status& end) {
    return records->Batch([&]() -> absl::Status {
      Add(*records, Screening("a"));
      Add(*records, Screening("b"));
      return end;
    });
  };
  EXPECT_FALSE(add_two(absl::AbortedError("no")).ok());
  EXPECT_EQ(Query("SELECT count(*) FROM trial"), "0");
  EXPECT_TRUE(add_two(absl::OkStatus()).ok());
  EXPECT_EQ(Query("SELECT count(*) FROM trial"), "2");
}

TEST_F(RecordsTest, BatchesWithinABatchAreOfItsTransaction) {
  auto records = MustOpen();
  const auto add_in_three = [&](const absl::Status& end) {
    return records->Batch([&]() -> absl::Status {
      for (const char* point : {"a", "b"}) {
        absl::Status inner = records->Batch([&] {
          Add(*records, Screening(point));
          return absl::OkStatus();
        });
        if (!inner.ok()) return inner;
      }
      Add(*records, Screening("c"));
      return end;
    });
  };
  EXPECT_TRUE(absl::IsAborted(add_in_three(absl::AbortedError("no"))));
  EXPECT_EQ(Query("SELECT count(*) FROM trial"), "0");
  EXPECT_TRUE(add_in_three(absl::OkStatus()).ok());
  EXPECT_EQ(Query("SELECT count(*) FROM trial"), "3");
}

TEST_F(RecordsTest, PagesGoThroughAllThatIsWhole) {
  auto records = MustOpen();
  for (const char* point : {"a", "b", "c", "d"}) Add(*records, Screening(point));
  Query("UPDATE trial SET time_us = 4 WHERE point = 'a' OR point = 'b'");  // checksums do not hold
  int64_t after = 0;
  auto page = records->ReadPage(after, 2);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->size(), 2);
  EXPECT_EQ(page->at(0).trial.point, "c");
  EXPECT_EQ(after, 4);
  page = records->ReadPage(after, 2);
  EXPECT_TRUE(page.ok() && page->empty());
}

}  // namespace
}  // namespace heddle::tuner
