// What the tests of the program share: it is run as a user runs it, in a folder of its own.
#ifndef HEDDLE_TESTS_CLI_CLI_SUPPORT_H_
#define HEDDLE_TESTS_CLI_CLI_SUPPORT_H_

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/process.h"

namespace heddle::tests {

using nlohmann::json;

inline void Write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class CliTest : public testing::Test {
 protected:
  // "tune matmul --shape m=1": words are arguments; @ stands for the test's folder.
  Ran Run(const std::string& line, std::vector<std::string> environment = {}) {
    std::vector<std::string> words;
    for (std::string word :
         std::vector<std::string>(absl::StrSplit(line, ' ', absl::SkipEmpty()))) {
      if (size_t at = word.find('@'); at != std::string::npos) word.replace(at, 1, folder_.path());
      words.push_back(word);
    }
    return RunHeddle(folder_ / "heddle.db", words, std::move(environment));
  }
  json RunJson(const std::string& line) {
    Ran ran = Run(line);
    EXPECT_EQ(ran.code, 0) << line << "\n" << ran.err;
    json document = json::parse(ran.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << line << "\n" << ran.out;
    return document;
  }

  TempFolder folder_;
};

// No driver and no OpenCL platform.
inline const std::vector<std::string> kNoDevices = {"OCL_ICD_VENDORS=/nonexistent",
                                                    "OCL_ICD_FILENAMES=", "CUDA_VISIBLE_DEVICES="};

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_CLI_CLI_SUPPORT_H_
