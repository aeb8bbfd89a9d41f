// JSON lines: merging without loss or duplicates, and lines that mean harm.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/tuner/records_support.h"

namespace heddle::tuner {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class RecordsImportTest : public RecordsFixture {
 protected:
  Records::ImportReport Import(Records& records, const std::string& lines) {
    std::istringstream in(lines);
    auto report = records.Import(in);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : Records::ImportReport();
  }
  std::string Export(Records& records) {
    std::ostringstream out;
    auto report = records.Export(out);
    EXPECT_TRUE(report.ok()) << report.status();
    return out.str();
  }
  // A good line, as exported from a database of its own.
  json Line(const TrialRecord& trial) {
    StoredTrial stored;
    stored.workload = {program_.hash, program_.op, R"({"n":32})", "float32",
                       program_.canonical_text};
    stored.environment = environment_;
    stored.trial = trial;
    return json::parse(PrintLine(stored));
  }
};

TEST_F(RecordsImportTest, MergesWithoutLossAndWithoutDuplicates) {
  auto here = MustOpen();
  path_ = folder_ + "/there.db";
  auto there = MustOpen();
  Add(*here, Final(1));
  Add(*here, Screening("a"));
  Add(*there, Final(2));
  TrialRecord failed = Screening("b");
  failed.result = {.outcome = measure::Outcome::kBuildError, .detail = "\x1b[31mbad\xff\n"};
  Add(*there, failed);

  Records::ImportReport report = Import(*here, Export(*there));
  EXPECT_EQ(report.added, 2);
  EXPECT_THAT(report.rejected, ElementsAre());
  report = Import(*there, Export(*here));
  EXPECT_EQ(report.added, 2);
  EXPECT_EQ(report.duplicate, 2);
  EXPECT_EQ(report.refused, 0);
  // Again, in both directions and into itself: nothing new.
  EXPECT_EQ(Import(*here, Export(*there)).added, 0);
  EXPECT_EQ(Import(*there, Export(*here)).added, 0);
  EXPECT_EQ(Import(*here, Export(*here)).duplicate, 4);
  EXPECT_EQ(All(*here).size(), 4u);
  EXPECT_EQ(All(*there).size(), 4u);
}

TEST_F(RecordsImportTest, KeepsEveryFieldButTheOrigin) {
  TrialRecord trial = Final(1.0 / 3);
  trial.when = absl::FromUnixMicros(987654321);
  trial.result.max_error = std::numeric_limits<double>::infinity();
  trial.result.noisy = true;
  trial.result.detail = "line 1\nline \"2\"";
  trial.result.local_bytes = int64_t{1} << 40;
  auto records = MustOpen();
  EXPECT_EQ(Import(*records, Line(trial).dump()).added, 1);
  const std::vector<StoredTrial> trials = All(*records);
  ASSERT_EQ(trials.size(), 1u);
  json expected = Line(trial);
  expected["trial"]["imported"] = true;
  EXPECT_EQ(json::parse(Export(*records)), expected);
  EXPECT_EQ(trials[0].trial.origin, Origin::kImported);
}

TEST_F(RecordsImportTest, IsNotServedBeforeItIsMeasuredHere) {
  auto records = MustOpen();
  Add(*records, Final(10));
  json line = Line(Final(1));
  line["trial"]["imported"] = false;
  EXPECT_EQ(Import(*records, line.dump()).added, 1);
  EXPECT_EQ(BestTime(*records), 10);
  EXPECT_EQ(All(*records).size(), 2u);
  Add(*records, Final(2));
  EXPECT_EQ(BestTime(*records), 2);
}

TEST_F(RecordsImportTest, RefusesLinesByNumberWithTheReason) {
  const json good = Line(Final(1));
  auto with = [&](const char* pointer, json value) {
    json line = good;
    line[json::json_pointer(pointer)] = std::move(value);
    return line.dump();
  };
  auto without = [&](const char* part, const char* key) {
    json line = good;
    line[part].erase(key);
    return line.dump();
  };
  std::string nan = good.dump();
  nan.replace(nan.find("\"time_us\":1.0"), 13, "\"time_us\":NaN");
  std::string huge = good.dump();
  huge.replace(huge.find("\"time_us\":1.0"), 13, "\"time_us\":1e999");
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"nonsense", "not JSON"},
      {"[1, 2]", "no object"},
      {"{\"format\": 2}", "\"format\" must be 1"},
      {"{\"format\": 1}", "\"workload\" must be an object"},
      {with("/trial/time_us", -1), "\"trial.time_us\" must be a finite number"},
      {with("/trial/time_us", 0), "needs a time above zero"},
      {with("/trial/time_us", "fast"), "\"trial.time_us\" must be"},
      {with("/trial/ci_low_us", nullptr), "\"trial.ci_low_us\" must be"},
      {with("/trial/compile_s", -0.5), "\"trial.compile_s\" must be"},
      {nan, "not JSON"},
      {huge, "too large"},
      {without("trial", "time_us"), "\"trial.time_us\" is missing"},
      {with("/trial/outcome", "GREAT"), "\"trial.outcome\" must be an outcome"},
      {with("/trial/samples", 1.5), "\"trial.samples\" must be a whole number"},
      {with("/trial/samples", 5000000000), "\"trial.samples\" must be a whole number"},
      {with("/trial/local_bytes", 18446744073709551615u), "\"trial.local_bytes\" must be"},
      {with("/trial/when_us", -5), "\"trial.when_us\" must be"},
      {with("/trial/noisy", 1), "\"trial.noisy\" must be true or false"},
      {with("/trial/point", "\x1b[2J"), "without control characters"},
      {with("/trial/steps", std::string(70000, 's')), "at most 65536 bytes"},
      {with("/workload/hash", "0123456789abcdef"), "the hash of \"workload.text\""},
      {with("/workload/text", "op evil() {}"), "the hash of \"workload.text\""},
      {with("/workload/shape", "n=32"), "\"workload.shape\" must be an object"},
      {with("/workload/shape", {{"n", -1}}), "\"workload.shape.n\" must be a whole number"},
      {with("/workload/dtype", "float31"), "\"workload.dtype\" must be a data type"},
      {with("/environment/l2", "tepid"), "\"environment.l2\" must be \"cold\" or \"warm\""},
      {with("/environment/device_name", 7), "\"environment.device_name\" must be text"},
      {std::string(100000, '['), "cut short"},
      {std::string(2 << 20, 'x'), "longer than"},
      {"\xff\xfe\x00\x01", "not JSON"},
  };
  json nameless = good;
  nameless["trial"]["point"] = nameless["trial"]["steps"] = "";
  std::string lines = good.dump() + "\n\n";
  for (const auto& [line, reason] : bad) lines += line + "\r\n";
  lines += nameless.dump();

  auto records = MustOpen();
  const Records::ImportReport report = Import(*records, lines);
  EXPECT_EQ(report.added, 1);
  EXPECT_EQ(report.refused, static_cast<int64_t>(bad.size()) + 1);
  ASSERT_EQ(report.rejected.size(), bad.size() + 1);
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_THAT(report.rejected[i],
                testing::AllOf(testing::StartsWith(absl::StrCat("line ", i + 3, ": ")),
                               HasSubstr(bad[i].second)));
    EXPECT_LT(report.rejected[i].size(), 300u);
  }
  EXPECT_THAT(report.rejected.back(), HasSubstr("a point or steps"));
}

TEST_F(RecordsImportTest, RemembersOnlySoManyReasons) {
  std::string lines;
  for (int i = 0; i < 1500; ++i) lines += "x\n";
  auto records = MustOpen();
  const Records::ImportReport report = Import(*records, lines);
  EXPECT_EQ(report.refused, 1500);
  EXPECT_EQ(report.rejected.size(), static_cast<size_t>(Records::kMaxRejected));
}

TEST_F(RecordsImportTest, CarriesManyPagesAndBatches) {
  auto records = MustOpen();
  const json line = Line(Screening("p"));
  std::string lines;
  constexpr int kCount = 2000;
  for (int i = 0; i < kCount; ++i) {
    json numbered = line;
    numbered["trial"]["point"] = absl::StrCat("p", i);
    numbered["trial"]["when_us"] = i;
    lines += numbered.dump() + "\n";
  }
  EXPECT_EQ(Import(*records, lines).added, kCount);
  std::istringstream out(Export(*records));
  std::set<std::string> points;
  for (std::string text; std::getline(out, text);) {
    points.insert(json::parse(text)["trial"]["point"]);
  }
  EXPECT_EQ(points.size(), static_cast<size_t>(kCount));
}

}  // namespace
}  // namespace heddle::tuner
