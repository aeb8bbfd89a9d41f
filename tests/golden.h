// Golden texts: what the program printed when a person last looked at it.
#ifndef HEDDLE_TESTS_GOLDEN_H_
#define HEDDLE_TESTS_GOLDEN_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support.h"

namespace heddle::tests {

// Expects `text` to be the content of tests/golden/<name>. With UPDATE_GOLDEN=1 in the environment
// the file is written instead: look at the difference before committing it.
inline void ExpectGolden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = SourceDir() + "/tests/golden/" + name;
  if (EnvironmentOr("UPDATE_GOLDEN", "") == "1") {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << "no golden " << path << "; UPDATE_GOLDEN=1 writes it. Text:\n" << text;
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << "differs from " << path
                                  << "; where that is intended, run again with UPDATE_GOLDEN=1";
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_GOLDEN_H_
