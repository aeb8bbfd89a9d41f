// What the documents name is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/process.h"
#include "tests/support.h"

namespace heddle {
namespace {

std::string Read(const std::string& name) {
  return tests::ReadAll(tests::SourceDir() + "/" + name);
}

// "/tuner/model/features.cc", ...; what is built here is not of the repository.
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
  // "RecordsServingTest.TheBestIsOneSeek, ServedIsWhatMayBeServed", "HostileTest.*"
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

// README.md, "/docs/search.md", ...
std::vector<std::string> Documents(const std::vector<std::string>& files) {
  std::vector<std::string> documents;
  for (const std::string& file : files) {
    if (absl::EndsWith(file, ".md") && !absl::StartsWith(file, "/tests/"))
      documents.push_back(file);
  }
  return documents;
}

TEST(Docs, FilesThatAreNamedExist) {
  static const auto& kWritten =
      *new std::set<std::string>{"run.cc", "table.h", "summary.md"};  // by our programs
  const std::vector<std::string> files = Files();
  int named = 0;
  for (const std::string& document : Documents(files)) {
    for (const std::string& name : NamedFiles(Read(document))) {
      if (absl::StrContains(name, "NAME")) continue;  // to be chosen by the reader
      if (kWritten.contains(name)) continue;
      EXPECT_TRUE(
          std::any_of(files.begin(), files.end(),
                      [&](const std::string& file) { return absl::EndsWith(file, "/" + name); }))
          << document << " names " << name;
      ++named;
    }
  }
  EXPECT_GT(named, 300);
}

// "](../results.md)" and "](results/h100.md#a)" in a document.
TEST(Docs, LinksLeadSomewhere) {
  int links = 0;
  static const std::regex kLink(R"(\]\(([^):#]+)[^)]*\))");
  for (const std::string& document : Documents(Files())) {
    const std::string text = Read(document);
    const auto folder = std::filesystem::path(tests::SourceDir() + document).parent_path();
    for (std::sregex_iterator it(text.begin(), text.end(), kLink), end; it != end; ++it) {
      EXPECT_TRUE(std::filesystem::exists(folder / (*it)[1].str()))
          << document << " has a link to " << (*it)[1];
      ++links;
    }
  }
  EXPECT_GT(links, 15);
}

// "docs/search.md" in a document, a comment or a message.
TEST(Docs, DocumentsThatAreNamedExist) {
  const auto is_of_name = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == '.';
  };
  int named = 0;
  for (const std::string& file : Files()) {
    const std::string text = Read(file);
    for (size_t at = text.find("docs/"); at != std::string::npos; at = text.find("docs/", at + 1)) {
      if (at > 0 && is_of_name(text[at - 1])) continue;
      size_t end = at;
      while (end < text.size() && is_of_name(text[end])) ++end;
      const size_t ending = text.substr(at, end - at).rfind(".md");
      if (ending == std::string::npos) continue;
      const std::string name = text.substr(at, ending + 3);
      EXPECT_TRUE(std::filesystem::exists(tests::SourceDir() + "/" + name))
          << file << " names " << name;
      ++named;
    }
  }
  EXPECT_GT(named, 150);
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
