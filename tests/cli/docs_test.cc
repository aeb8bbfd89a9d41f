// The files that the documents name are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support.h"

namespace heddle {
namespace {

std::string Read(const std::string& name) {
  std::ifstream file(tests::SourceDir() + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// "/tuner/model/terms.cc", ...; what is built here is not of the repository.
std::vector<std::string> Files() {
  const std::string root = tests::SourceDir();
  std::vector<std::string> files;
  std::filesystem::recursive_directory_iterator it(root), end;
  for (; it != end; ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory() && (name == "build" || name[0] == '.')) it.disable_recursion_pending();
    if (it->is_regular_file()) files.push_back(it->path().string().substr(root.size()));
  }
  return files;
}

// What is in backticks and ends like a file, a.{h,cc} being two.
std::vector<std::string> NamedFiles(const std::string& text) {
  static const std::regex kFile(R"(`([A-Za-z0-9_./]+\.)(h|cc|md|proto|\{h,cc\})`)");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), kFile), end; it != end; ++it) {
    const std::vector<std::string> endings =
        absl::StrSplit((*it)[2].str(), absl::ByAnyChar("{,}"), absl::SkipEmpty());
    for (const std::string& ending : endings) {
      names.push_back((*it)[1].str() + ending);
    }
  }
  return names;
}

// A finding is mended as long as its test is there.
TEST(Docs, TestsThatAreNamedExist) {
  std::set<std::string> suites, tests;
  for (const std::string& name : Files()) {
    if (!absl::StartsWith(name, "/tests/") || !absl::EndsWith(name, ".cc")) continue;
    static const std::regex kTest(R"(TEST(_F|_P)?\((\w+),\s+(\w+)\))");
    const std::string text = Read(name);
    for (std::sregex_iterator it(text.begin(), text.end(), kTest), end; it != end; ++it) {
      suites.insert((*it)[2]);
      tests.insert(absl::StrCat((*it)[2].str(), ".", (*it)[3].str()));
    }
  }
  // "RecordsTest.TheBestIsOneSeek, ServedIsWhatMayBeServed", "HostileTest.*"
  static const std::regex kNamed(R"(([A-Z]\w+)\.(\*|[A-Z]\w+)((?:, [A-Z]\w{12,}(?![\w.]))*))");
  const std::string text = Read("docs/reviews.md");
  int named = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), kNamed), end; it != end; ++it) {
    const std::string suite = (*it)[1], first = (*it)[2], rest = (*it)[3];
    if (first == "*") {
      EXPECT_TRUE(suites.contains(suite)) << suite;
      continue;
    }
    for (const absl::string_view name : absl::StrSplit(first + rest, ", ")) {
      EXPECT_TRUE(tests.contains(absl::StrCat(suite, ".", name))) << suite << "." << name;
      ++named;
    }
  }
  EXPECT_GT(named, 40);
}

TEST(Docs, FilesThatAreNamedExist) {
  const std::vector<std::string> files = Files();
  for (const std::string document :
       {"README.md", "docs/adding.md", "docs/architecture.md", "docs/glossary.md",
        "docs/measurement.md", "docs/records.md", "docs/reviews.md", "docs/service.md"}) {
    for (const std::string& name : NamedFiles(Read(document))) {
      if (absl::StrContains(name, "NAME")) continue;  // to be chosen by the reader
      EXPECT_TRUE(
          std::any_of(files.begin(), files.end(),
                      [&](const std::string& file) { return absl::EndsWith(file, "/" + name); }))
          << document << " names " << name;
    }
  }
}

TEST(Docs, EachTermOfTheGlossaryHasItsFile) {
  std::set<std::string> terms;
  const std::vector<std::string> lines = absl::StrSplit(Read("docs/glossary.md"), '\n');
  for (const std::string& line : lines) {
    if (!absl::StartsWith(line, "| ") || line == "| word | is | in |") continue;
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    ASSERT_EQ(cells.size(), 5) << line;
    EXPECT_TRUE(terms.insert(cells[1]).second) << cells[1] << " twice";
    EXPECT_GT(cells[2].size(), 10) << line;
    const std::vector<std::string> named = NamedFiles(cells[3]);
    ASSERT_EQ(named.size(), 1) << line;
    EXPECT_TRUE(std::filesystem::exists(tests::SourceDir() + "/" + named[0])) << line;
  }
  EXPECT_GT(terms.size(), 80);
}

}  // namespace
}  // namespace heddle
