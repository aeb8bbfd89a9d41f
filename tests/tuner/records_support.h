// What the tests of the records share: a folder of their own, a workload, trials, and direct access
// to the file.
#ifndef HEDDLE_TESTS_TUNER_RECORDS_SUPPORT_H_
#define HEDDLE_TESTS_TUNER_RECORDS_SUPPORT_H_

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tuner/records/records.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_sql.h"

namespace heddle::tuner {

class RecordsFixture : public testing::Test {
 protected:
  RecordsFixture() {
    std::string pattern = testing::TempDir() + "/records.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/heddle.db";
    program_ = Program(32);
    environment_.device_name = "Loom 9000";
    environment_.device_uuid = "uuid";
    environment_.arch = "sm_90";
    environment_.sm_count = 132;
    environment_.driver = "1";
    environment_.compiler = "NVRTC 13.0";
    environment_.generator_version = 1;
  }
  ~RecordsFixture() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static search_space::TensorProgram Program(int64_t n) {
    search_space::TensorProgram program;
    program.op = "vector_add";
    program.shape = {{"n", n}};
    program.canonical_text = absl::StrCat("op vector_add(n) { ... } n=", n, " float32");
    program.hash = absl::StrFormat("%016x", HashOf(program.canonical_text));
    return program;
  }
  static TrialRecord Screening(const std::string& point) {
    TrialRecord trial;
    trial.point = point;
    trial.result.outcome = measure::Outcome::kOk;
    trial.result.time_us = 5;
    return trial;
  }
  static TrialRecord Final(double time_us) {
    TrialRecord trial = Screening("tile: threads=256");
    trial.steps = "bind(C, i, thread)";
    trial.stage = TrialStage::kFinal;
    trial.result.time_us = time_us;
    return trial;
  }

  std::unique_ptr<Records> MustOpen() {
    auto records = Records::Open(path_);
    if (records.ok()) return *std::move(records);
    ADD_FAILURE() << records.status();
    std::abort();
  }
  // A final of a schedule of its own.
  static TrialRecord FinalOf(const std::string& schedule, double time_us) {
    TrialRecord trial = Final(time_us);
    trial.point = "tile: " + schedule;
    trial.steps = "split(C, i, [" + schedule + "])\nbind(C, i, thread)\n";
    return trial;
  }
  static TrialRecord Failed(TrialRecord trial, measure::Outcome outcome) {
    trial.result.outcome = outcome;
    trial.result.time_us = 0;
    return trial;
  }
  void Add(Records& records, const TrialRecord& trial) {
    auto id = records.AddTrial(program_, environment_, trial);
    EXPECT_TRUE(id.ok()) << id.status();
  }
  // Everything that can be read, imports included.
  static std::vector<StoredTrial> All(Records& records) {
    std::vector<StoredTrial> all;
    for (int64_t after = 0;;) {
      auto page = records.ReadPage(after, 1000);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok() || page->empty()) return all;
      for (StoredTrial& stored : *page) all.push_back(std::move(stored));
    }
  }
  // The time of what is served; 0 when nothing is.
  double BestTime(Records& records) {
    auto best = records.FindBest(program_.hash, BenchOf(environment_));
    EXPECT_TRUE(best.ok()) << best.status();
    return best.ok() && best->has_value() ? (*best)->trial.result.time_us : 0;
  }

  // The last column of every row that a statement gives, past all safeguards.
  std::string Query(const std::string& sql) {
    sqlite3* handle = nullptr;
    EXPECT_EQ(sqlite3_open(path_.c_str(), &handle), SQLITE_OK);
    std::string result;
    auto append = [](void* to, int columns, char** values, char**) {
      *static_cast<std::string*>(to) += values[columns - 1] ? values[columns - 1] : "NULL";
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), append, &result, nullptr), SQLITE_OK)
        << sqlite3_errmsg(handle);
    sqlite3_close(handle);
    return result;
  }
  std::string Plan(const std::string& sql) { return Query("EXPLAIN QUERY PLAN " + sql); }

  // The exit code of a child; 1000 and more: the signal that ended it.
  static int ExitCode(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::string folder_, path_;
  search_space::TensorProgram program_;
  Environment environment_;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TESTS_TUNER_RECORDS_SUPPORT_H_
