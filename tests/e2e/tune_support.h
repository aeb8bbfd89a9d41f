// The program as a user runs it, with a folder and a database of its own, on the CPU through PoCL.
#ifndef HEDDLE_TESTS_E2E_TUNE_SUPPORT_H_
#define HEDDLE_TESTS_E2E_TUNE_SUPPORT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/process.h"

namespace heddle::tests {

using nlohmann::json;

// Whether there is an OpenCL device; looked at once.
inline bool HaveOpenCl() {
  static const bool have = [] {
    TempFolder folder;
    json all = json::parse(RunHeddle(folder / "db", {"devices", "--json"}).out, nullptr, false);
    if (!all.is_array()) return false;
    for (const json& device : all) {
      if (device["id"] == "opencl:0" && device["usable"]) return true;
    }
    return false;
  }();
  return have;
}

class TuneTest : public testing::Test {
 protected:
  void SetUp() override { HEDDLE_NEEDS("pocl", HaveOpenCl(), "no OpenCL device"); }

  Ran Run(const std::string& line, std::vector<std::string> environment = {}) {
    return RunHeddle(Db(), Words(line), std::move(environment));
  }
  json RunJson(const std::string& line, int code = 0) {
    Ran ran = Run(line + " --json");
    EXPECT_EQ(ran.code, code) << line << "\n" << ran.err;
    json document = json::parse(ran.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << line << "\n" << ran.out << ran.err;
    return document;
  }
  // The artefact's launcher in C++: it compiles, and finds nothing wrong.
  static void ExpectItsLauncherRuns(const std::filesystem::path& artefact) {
    const Ran built =
        Process({"g++", "-std=c++17", "run.cc", "-lOpenCL", "-o", "run"}, {}, artefact).Wait();
    ASSERT_EQ(built.code, 0) << built.err;
    const Ran ran = Process({"./run"}, {}, artefact).Wait();
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    EXPECT_THAT(ran.out, testing::HasSubstr(" 0 wrong"));
  }
  std::string Db() const { return folder_ / "heddle.db"; }
  std::vector<std::string> Words(const std::string& line) const {
    std::vector<std::string> words;
    for (std::string word :
         std::vector<std::string>(absl::StrSplit(line, ' ', absl::SkipEmpty()))) {
      if (size_t at = word.find('@'); at != std::string::npos) word.replace(at, 1, folder_.path());
      words.push_back(word);
    }
    return words;
  }
  // Trials in the database.
  int AllTrials() {
    Ran ran = Run("records export -");
    return static_cast<int>(std::count(ran.out.begin(), ran.out.end(), '\n'));
  }

  TempFolder folder_;
};

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_E2E_TUNE_SUPPORT_H_
