// Collecting what runs on nodes have left behind: in any order, as often as one likes.
#include "tuner/records/transfer/collect.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/tuner/records_support.h"

namespace heddle::tuner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CollectTest : public RecordsFixture {
 protected:
  static RunHeader Header(const std::string& run, int64_t attempt, const std::string& host) {
    return {run, attempt, host, "Loom 9000", 1};
  }
  // A file of an attempt, its trials made at `when_us` and the microseconds after it.
  std::string File(const RunHeader& header, std::vector<TrialRecord> trials,
                   int64_t when_us = 1000) {
    std::string text = PrintRunHeader(header) + "\n";
    for (TrialRecord& trial : trials) {
      trial.when = absl::FromUnixMicros(when_us++);
      StoredTrial stored;
      stored.workload = {program_.hash, program_.op, R"({"n":32})", "float32",
                         program_.canonical_text};
      stored.environment = environment_;
      stored.trial = trial;
      absl::StrAppend(&text, PrintLine(stored), "\n");
    }
    return text;
  }
  static CollectReport Collect(Records& records, const std::string& file) {
    std::istringstream in(file);
    auto report = tuner::Collect(records, in);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : CollectReport();
  }
  std::optional<Records::Best> Best(Records& records) {
    auto best = records.FindBest(program_.hash, BenchOf(environment_));
    EXPECT_TRUE(best.ok()) << best.status();
    return best.ok() ? *best : std::nullopt;
  }
  // Whatever a database says, without the ids of its rows: each trial under its run, attempt and
  // sequence, and what is served, in order.
  std::string Content() {
    const std::string key =
        "(SELECT a.run || ' ' || a.number || ' ' || c.sequence FROM collected c "
        "JOIN attempt a ON a.id = c.attempt WHERE c.trial = t.id)";
    return Query(absl::StrCat("SELECT ", key,
                              " || ' ' || t.checksum || ' ' || f.host || ' ' || f.run || char(10) "
                              "FROM trial t LEFT JOIN source f ON f.id = t.source ORDER BY 1")) +
           Query(absl::StrCat("SELECT ", key,
                              " || ' ' || v.time_us || char(10) FROM served v "
                              "JOIN trial t ON t.id = v.trial ORDER BY 1"));
  }
};

TEST_F(CollectTest, WhatANodeHasMeasuredIsServedAsMeasuredByIt) {
  auto records = MustOpen();
  const CollectReport report =
      Collect(*records, File(Header("suite-3", 0, "n1"), {Screening("a"), FinalOf("2", 7)}) +
                            "{\"format\":1,\"end\":{\"exit_code\":0}}\n");
  EXPECT_EQ(report.trials.added, 2);
  EXPECT_EQ(report.exit_code, 0);
  auto best = Best(*records);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->trial.origin, Origin::kMeasured);
  EXPECT_EQ(best->trial.from, (Provenance{"", 0, "n1", "suite-3"}));
  // A session goes on from there.
  EXPECT_EQ(records->Trials(program_, environment_)->size(), 2U);
}

TEST_F(CollectTest, AnAttemptThatWasReplacedDoesNotOverrule) {
  for (const bool late : {false, true}) {
    path_ = folder_ + (late ? "/late.db" : "/early.db");
    auto records = MustOpen();
    // The node that was given up runs on, so that its final is the later one by every clock.
    const std::string replaced = File(Header("r", 0, "n1"), {FinalOf("2", 5)}, 9000);
    const std::string replacing = File(Header("r", 1, "n2"), {FinalOf("2", 8)}, 1000);
    Collect(*records, late ? replacing : replaced);
    Collect(*records, late ? replaced : replacing);
    EXPECT_EQ(Best(*records)->trial.result.time_us, 8) << late;
  }
}

// The property: the content is a function of which lines were collected, whatever the order and
// however often.
TEST_F(CollectTest, AnyOrderAndRepetitionGivesTheSameContent) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 rng(seed);
  const auto any = [&](int count) { return static_cast<int>(rng() % count); };
  for (int round = 0; round < 8; ++round) {
    std::vector<std::string> files;
    for (int run = 0; run < 3; ++run) {
      for (int attempt = 0; attempt <= any(3); ++attempt) {
        std::vector<TrialRecord> trials;
        for (int i = any(6); i >= 0; --i) {
          TrialRecord trial = FinalOf(absl::StrCat(any(3)), 10 + any(3));
          // A point may have other steps, and steps another point.
          if (any(3) == 0) trial.point = absl::StrCat("tile: ", any(3));
          if (any(4) == 0) trial.stage = TrialStage::kScreening;
          if (any(5) == 0) trial = Failed(trial, measure::Outcome::kWrongAnswer);
          if (any(6) == 0) trial = Failed(trial, measure::Outcome::kWorkerLost);
          trials.push_back(trial);
        }
        environment_.sm_count = 132 + any(2);
        files.push_back(File(Header(absl::StrCat("run-", run), attempt, absl::StrCat("n", any(3))),
                             trials, any(5) * 1000000 + 10000 * static_cast<int>(files.size())));
      }
    }
    std::shuffle(files.begin(), files.end(), rng);
    files.resize(1 + any(static_cast<int>(files.size())));
    std::string once;
    for (int order = 0; order < 4; ++order) {
      path_ = folder_ + absl::StrCat("/", round, "-", order, ".db");
      auto records = MustOpen();
      std::shuffle(files.begin(), files.end(), rng);
      // Some while they are written, cut anywhere after their first line, and some again.
      for (const std::string& file : files) {
        if (any(2) == 0) {
          const size_t first = file.find('\n') + 1;
          Collect(*records, file.substr(0, first + rng() % (file.size() - first + 1)));
        }
        if (any(3) == 0) Collect(*records, files[any(static_cast<int>(files.size()))]);
      }
      for (const std::string& file : files) Collect(*records, file);
      ASSERT_EQ(Query("SELECT * FROM served EXCEPT SELECT * FROM servable"), "");
      ASSERT_EQ(Query("SELECT * FROM servable EXCEPT SELECT * FROM served"), "");
      const std::string content = Content();
      if (order == 0) once = content;
      ASSERT_EQ(content, once) << "round " << round;
      for (const std::string& file : files) {
        EXPECT_EQ(Collect(*records, file).trials.added, 0);
      }
      EXPECT_EQ(Content(), once);
    }
  }
}

TEST_F(CollectTest, WhatWasRemovedStaysAway) {
  auto records = MustOpen();
  const std::string file = File(Header("r", 0, "n1"), {FinalOf("2", 7), FinalOf("3", 9)});
  Collect(*records, file);
  ASSERT_TRUE(records->database().Run("DELETE FROM trial WHERE time_us = 7").ok());
  EXPECT_EQ(Collect(*records, file).trials.duplicate, 2);
  EXPECT_EQ(Best(*records)->trial.result.time_us, 9);
}

TEST_F(CollectTest, AnImportOfTheSameTrialIsNoSecondOne) {
  const std::string file = File(Header("r", 0, "n1"), {FinalOf("2", 7)});
  const std::string lines = file.substr(file.find('\n') + 1);
  for (const bool import_first : {false, true}) {
    path_ = folder_ + (import_first ? "/first.db" : "/last.db");
    auto records = MustOpen();
    std::istringstream in(lines);
    if (!import_first) Collect(*records, file);
    ASSERT_TRUE(records->Import(in).ok());
    if (import_first) Collect(*records, file);
    EXPECT_EQ(Query("SELECT count(*) FROM trial"), "1") << import_first;
    EXPECT_TRUE(Best(*records)) << import_first;
  }
}

TEST_F(CollectTest, RefusesLineByLine) {
  auto records = MustOpen();
  std::string file = File(Header("r", 0, "n1"), {FinalOf("2", 7), FinalOf("3", 9)});
  file += "no trial\n";
  CollectReport report = Collect(*records, file);
  EXPECT_EQ(report.trials.added, 2);
  EXPECT_THAT(report.trials.rejected, ElementsAre(HasSubstr("line 4: not JSON")));
  // Two processes under one attempt: the first stays, and nothing is lost silently.
  report = Collect(*records, File(Header("r", 0, "n1"), {FinalOf("2", 6)}));
  EXPECT_THAT(report.trials.rejected,
              ElementsAre(HasSubstr("line 2: another trial was collected")));
  EXPECT_EQ(Best(*records)->trial.result.time_us, 7);

  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "empty"},
           {R"({"format":1,"workload":{}})", "does not begin as one of a run's"},
           {R"({"format":2,"run":{"name":"r"}})", "does not begin as one of a run's"},
           {R"({"format":1,"run":{"name":"../r"}})", "run.name"},
           {R"({"format":1,"run":{"name":"r","attempt":-1}})", "run.attempt"},
           {R"({"format":1,"run":{"name":"r","attempt":0,"host":7}})", "run.host"},
           {R"({"format":1,"run":{"name":"r","attempt":0,"host":"n"}})", "run.device"},
           {R"({"format":1,"run":{"name":"r","attempt":0,"host":"n","device":"d"}})",
            "run.generator_version"}}) {
    std::istringstream in(line.empty() ? "" : line + "\n");
    auto refused = tuner::Collect(*records, in);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(why));
  }
}

// More lines than one transaction takes, the last but one refused, in parts that lose none.
TEST_F(CollectTest, ALongFileIsReadInParts) {
  constexpr int kTrials = 1300;
  std::vector<TrialRecord> trials;
  for (int i = 0; i < kTrials; ++i) trials.push_back(Screening(absl::StrCat(i)));
  const std::string file = File(Header("r", 0, "n1"), trials) + "no trial\n" +
                           R"({"format":1,"end":{"exit_code":3}})" + "\n";
  std::istringstream in(file);
  auto reader = RunReader::Open(in);
  ASSERT_TRUE(reader.ok()) << reader.status();
  size_t parts = 0;
  int64_t lines = 0;
  for (RunPart part = reader->Next(); !part.empty(); part = reader->Next(), ++parts) {
    for (const RunLine& line : part) EXPECT_EQ(line.sequence, ++lines);
  }
  EXPECT_GT(parts, 2U);
  EXPECT_EQ(lines, kTrials + 1);
  EXPECT_EQ(reader->exit_code(), 3);

  auto records = MustOpen();
  const CollectReport report = Collect(*records, file);
  EXPECT_EQ(report.trials.added, kTrials);
  EXPECT_EQ(report.exit_code, 3);
  EXPECT_THAT(report.trials.rejected, ElementsAre(HasSubstr("line 1302: not JSON")));
}

// A run writes what it measures itself, and what earlier attempts have measured only once.
TEST_F(CollectTest, ARunsFileHoldsWhatThisAttemptHasMeasured) {
  auto node = MustOpen();
  auto first = RunFile::Create(folder_, Header("r", 99, "n1"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->header().attempt, 0) << "the folder says which attempt it is";
  int64_t after = 0;
  Add(*node, Screening("a"));
  ASSERT_TRUE(first->AppendNewTrials(*node, after).ok());
  Add(*node, FinalOf("2", 7));
  ASSERT_TRUE(first->AppendNewTrials(*node, after).ok());
  ASSERT_TRUE(first->AppendNewTrials(*node, after).ok());

  path_ = folder_ + "/second.db";
  auto other = MustOpen();
  std::ifstream in(folder_ + "/r.0.jsonl");
  auto report = tuner::Collect(*other, in);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->trials.added, 2);
  EXPECT_EQ(report->exit_code, std::nullopt);
  std::istringstream foreign(File(Header("x", 0, "n9"), {FinalOf("5", 4)}));
  foreign.ignore(1000, '\n');
  ASSERT_EQ(other->Import(foreign)->added, 1);

  auto second = RunFile::Create(folder_, Header("r", 0, "n2"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->header().attempt, 1);
  after = 2;  // what was collected before
  Add(*other, FinalOf("2", 8));
  ASSERT_TRUE(second->AppendNewTrials(*other, after).ok());
  ASSERT_TRUE(second->End(0).ok());
  std::ifstream again(folder_ + "/r.1.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(again, line);) lines.push_back(line);
  EXPECT_THAT(lines, ElementsAre(HasSubstr(R"("attempt":1)"), HasSubstr(R"("time_us":8.0)"),
                                 HasSubstr(R"("exit_code":0)")));

  // A file that is no run's costs nothing but itself, a folder that cannot be read everything.
  for (const char* text : {"not a run\n", "{\"format\":1,\"run\":7}\n", "\xff\n"}) {
    std::ofstream(folder_ + "/damaged.jsonl") << text;
    std::vector<std::string> refused;
    auto runs = AttemptsIn(folder_, refused);
    ASSERT_TRUE(runs.ok()) << runs.status();
    EXPECT_EQ(runs->size(), 1U);
    EXPECT_THAT(refused, ElementsAre(HasSubstr("/damaged.jsonl: ")));
  }
  std::filesystem::remove(folder_ + "/damaged.jsonl");
  std::filesystem::create_symlink(folder_ + "/loop", folder_ + "/loop");
  std::vector<std::string> refused;
  EXPECT_EQ(AttemptsIn(folder_ + "/loop", refused).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AttemptsIn(folder_ + "/no", refused).status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(folder_ + "/loop");

  auto runs = AttemptsIn(folder_, refused);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_THAT(refused, ElementsAre());
  ASSERT_EQ(runs->size(), 1U);
  ASSERT_EQ(runs->at("r").size(), 2U);
  EXPECT_EQ(runs->at("r")[0].exit_code, std::nullopt);
  EXPECT_EQ(runs->at("r")[1].exit_code, 0);
}

}  // namespace
}  // namespace heddle::tuner
