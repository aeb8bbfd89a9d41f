// What each primitive and each pass does, one golden a name: tests/golden/primitives/NAME.txt and
// tests/golden/passes/NAME.txt. A golden begins with what is to be done, as a person wrote it:
//     workload: OPERATOR SHAPE (TYPE, unless it is float32)
//     operator: (unless it ships with the program: its text, indented)
//     given:    (steps, indented)
//     apply:    (of primitives: steps, indented)
//     refuse:   (of primitives: steps that do not apply behind these, indented)
// What follows the line of dashes is printed by the test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "tests/golden.h"

namespace heddle::search_space {
namespace {

constexpr char kDashes[] = "----\n";

struct Golden {
  std::string head;  // as written
  std::string workload;
  std::map<std::string, std::string> sections;  // operator, given, apply, refuse
};

Golden ReadGolden(const std::string& name) {
  Golden golden;
  std::ifstream file(tests::SourceDir() + "/tests/golden/" + name);
  std::string section;
  for (std::string line; std::getline(file, line) && line + "\n" != kDashes;) {
    absl::StrAppend(&golden.head, line, "\n");
    if (absl::StartsWith(line, " ")) {
      absl::StrAppend(&golden.sections[section], line, "\n");
    } else {
      section = line.substr(0, line.find(':'));
      if (section == "workload") golden.workload = line.substr(line.find(' ') + 1);
    }
  }
  return golden;
}

Schedule Unscheduled(Golden& golden) {
  const std::vector<std::string> parts = absl::StrSplit(golden.workload, ' ');
  const std::string& own = golden.sections["operator"];
  const auto op =
      FindOperator(own.empty() ? BuiltinOperators() : *ParseOperators(own), parts.at(0));
  return Schedule(std::make_shared<const TensorProgram>(*op->Instantiate(
      *ParseShape(parts.at(1)), parts.size() > 2 ? *ParseDType(parts.at(2)) : DType::kFloat32)));
}

std::vector<Step> Parsed(const std::string& steps) {
  const auto parsed = ParseSteps(steps);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : std::vector<Step>();
}

std::string Loops(const Schedule& schedule) {
  const auto program = Lower(schedule);
  return program.ok() ? ToString(*program)
                      : absl::StrCat("no kernel: ", std::string(program.status().message()), "\n");
}

std::set<std::string> GoldensIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(tests::SourceDir() + "/tests/golden/" + folder)) {
    names.insert(entry.path().stem());
  }
  return names;
}

template <size_t... I>
std::set<std::string> PrimitiveNames(std::index_sequence<I...> /*unused*/) {
  return {std::variant_alternative_t<I, Step>::kName...};
}
const std::set<std::string>& PrimitiveNames() {
  static const auto& names = *new std::set<std::string>(
      PrimitiveNames(std::make_index_sequence<std::variant_size_v<Step>>()));
  return names;
}

// What the schedule is before and after the steps, and why others do not apply.
std::string OfPrimitive(Golden& golden) {
  const Schedule given = [&] {
    Schedule schedule = Unscheduled(golden);
    EXPECT_TRUE(Apply(Parsed(golden.sections["given"]), schedule).ok());
    return schedule;
  }();
  Schedule applied = given;
  const absl::Status status = Apply(Parsed(golden.sections["apply"]), applied);
  EXPECT_TRUE(status.ok()) << status;
  std::string refused;
  for (const Step& step : Parsed(golden.sections["refuse"])) {
    Schedule other = applied;
    const std::string before = Loops(other);
    const absl::Status why = Apply(step, other);
    EXPECT_FALSE(why.ok()) << ToString(step);
    EXPECT_EQ(Loops(other), before) << "changed by refused " << ToString(step);
    absl::StrAppend(&refused, why.message(), "\n");
  }
  EXPECT_FALSE(refused.empty()) << "no refusal is shown";
  return absl::StrCat("before\n", Loops(given), "\nafter\n", Loops(applied), "\nrefused\n",
                      refused);
}

class Primitives : public testing::TestWithParam<std::string> {};

TEST_P(Primitives, DoWhatTheirGoldenSays) {
  const std::string name = absl::StrCat("primitives/", GetParam(), ".txt");
  Golden golden = ReadGolden(name);
  ASSERT_FALSE(golden.workload.empty()) << name << " is missing";
  for (const char* section : {"given", "apply"}) {
    const std::vector<Step> steps = Parsed(golden.sections[section]);
    EXPECT_EQ(Parsed(ToString(steps)), steps);
  }
  EXPECT_NE(absl::StrCat("\n", golden.sections["apply"]).find(GetParam() + "("), std::string::npos);
  tests::ExpectGolden(name, absl::StrCat(golden.head, kDashes, OfPrimitive(golden)));
}

INSTANTIATE_TEST_SUITE_P(All, Primitives, testing::ValuesIn(PrimitiveNames()),
                         [](const auto& info) { return info.param; });

TEST(Goldens, AreThoseOfAllPrimitives) { EXPECT_EQ(GoldensIn("primitives"), PrimitiveNames()); }

// The first kernel that the pass changes, before and after it; the names of all passes that ran.
std::string OfPass(Golden& golden, const std::string& pass, std::set<std::string>& ran) {
  Schedule schedule = Unscheduled(golden);
  const absl::Status status = Apply(Parsed(golden.sections["given"]), schedule);
  EXPECT_TRUE(status.ok()) << status;
  std::string before, out;
  const auto lowered = Lower(
      schedule, [](const ScheduledStage&) { return true; },
      [&](absl::string_view name, const Kernel& kernel) {
        const std::string after = ToString(kernel);
        if (name != "emit") ran.insert(std::string(name));
        if (name == pass && after != before && out.empty()) {
          out = absl::StrCat("before\n", before, "\nafter\n", after);
        }
        before = after;
      });
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_FALSE(out.empty()) << pass << " changes nothing here";
  return out;
}

TEST(Goldens, SayWhatPassesDo) {
  std::set<std::string> ran;
  for (const std::string& pass : GoldensIn("passes")) {
    const std::string name = absl::StrCat("passes/", pass, ".txt");
    Golden golden = ReadGolden(name);
    tests::ExpectGolden(name, absl::StrCat(golden.head, kDashes, OfPass(golden, pass, ran)));
  }
  EXPECT_EQ(GoldensIn("passes"), ran) << "every pass has a golden";
}

}  // namespace
}  // namespace heddle::search_space
