// Every operator that bench/suites measures must have inputs on which its kernels can be checked.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "measure/judge/inputs.h"
#include "search_space/notation/notation.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

namespace fs = std::filesystem;

struct Row {
  fs::path suite;
  std::string text;
};

std::string TextOf(const fs::path& path) {
  auto text = ReadTextFile(path.string(), 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

std::vector<Row> RowsOfSuites() {
  std::set<fs::path> suites;
  for (const auto& entry : fs::directory_iterator(tests::SourceDir() + "/bench/suites")) {
    if (entry.path().extension() == ".txt") suites.insert(entry.path());
  }
  std::vector<Row> rows;
  for (const fs::path& suite : suites) {
    const std::string text = TextOf(suite);
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      if (line.front() != '#') rows.push_back({suite, std::string(line)});
    }
  }
  return rows;
}

void CheckRow(const Row& row) {
  SCOPED_TRACE(row.suite.filename().string() + ": " + row.text);
  std::vector<search_space::Operator> operators = search_space::BuiltinOperators();
  if (const fs::path file = fs::path(row.suite).replace_extension(".op"); fs::exists(file)) {
    auto own = search_space::ParseOperators(TextOf(file));
    ASSERT_TRUE(own.ok()) << own.status();
    operators.insert(operators.begin(), own->begin(), own->end());
  }
  const std::vector<std::string> words = absl::StrSplit(row.text, ' ', absl::SkipEmpty());
  ASSERT_GE(words.size(), 2u);
  search_space::DType type = search_space::DType::kFloat32;
  for (absl::string_view word : words) {
    if (absl::ConsumePrefix(&word, "dtype=")) type = *search_space::ParseDType(std::string(word));
  }
  const auto op = search_space::FindOperator(operators, words[0]);
  ASSERT_TRUE(op.ok()) << op.status();
  const auto shape = search_space::ParseShape(words[1]);
  ASSERT_TRUE(shape.ok()) << shape.status();
  const auto program = op->Instantiate(*shape, type);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto chosen = Inputs(*program, 1).Choose();
  EXPECT_TRUE(chosen.ok()) << chosen.status();
}

// One row of `every`, beginning with `first`.
void CheckRows(size_t first, size_t every) {
  const std::vector<Row> rows = RowsOfSuites();
  ASSERT_GT(rows.size(), 200u);
  for (size_t i = first; i < rows.size(); i += every) CheckRow(rows[i]);
}

TEST(SuitesTest, SomeOfTheirRowsCanBeChecked) { CheckRows(tests::Seed() % 25, 25); }

class LongSuitesTest : public testing::TestWithParam<size_t> {};
TEST_P(LongSuitesTest, EveryRowCanBeChecked) { CheckRows(GetParam(), 8); }
INSTANTIATE_TEST_SUITE_P(Rows, LongSuitesTest, testing::Range<size_t>(0, 8));

}  // namespace
}  // namespace heddle::measure
