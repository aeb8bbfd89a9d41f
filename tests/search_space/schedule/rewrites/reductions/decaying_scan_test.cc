// Sums of prefixes whose terms decay by what tensors say, as in linear recurrences: which are such,
// that few terms are computed for them, and that schedules of them compute the definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/analysis/falling_levels.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/rewrites/reductions/scan.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/least_flops.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::decaying_scan_test {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const TensorProgram> Make(const std::string& text, const std::string& shape) {
  return InstantiatedFrom(text, "f", shape, DType::kFloat32);
}

// Levels fall by up to 0.75 an element, so that what is far away is gone; X is of any sign.
TensorValues InputsOf(const TensorProgram& program) {
  TensorValues values;
  for (const BufferRef& input : program.inputs) {
    std::vector<double>& elements = values[input->name];
    for (int64_t i = 0; i < input->elements; ++i) {
      const int64_t hash = (i * 7919 + 13) % 101;
      const int64_t n = input->shape.back(), row = i % n;
      elements.push_back(input->name == "L"
                             ? -0.5 * static_cast<double>(row) - static_cast<double>(hash % 4) / 16
                             : static_cast<double>(hash - 50) / 25);
    }
  }
  return values;
}

// Points of that sketch compute Y as it is defined, but for columns that are left out.
void ExpectPoints(const std::shared_ptr<const TensorProgram>& program, const TensorValues& inputs,
                  size_t count, const char* sketch, double most,
                  std::optional<size_t> left_out = std::nullopt) {
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto space = SearchSpace::Create(program, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  const auto columns = static_cast<size_t>(program->stages.back().tensor->shape.back());
  ForDrawnPoints(*space, count, BeginsWith(sketch), inputs,
                 [&](const Program&, const TensorValues& values) {
                   const std::vector<double>& y = values.at("Y");
                   for (size_t i = 0; i < y.size(); ++i) {
                     if (left_out == i % columns) continue;
                     ASSERT_NEAR(y[i], expected.at("Y")[i], most) << i;
                   }
                 });
}

struct Case {
  const char *name, *text;
};

// L falls from left to right: sums from the end have it the other way round.
constexpr Case kCases[] = {
    {"forwards",
     "op f(m, n) { in X[m, n], L[m, n] "
     "out Y[i: m, j: n] = sum(r: n) select(r <= j, exp(L[i, j] - L[i, r]) * X[i, r], 0) }"},
    {"columns",
     "op f(m, n) { in X[n, m], L[m, n] "
     "out Y[j: n, i: m] = sum(r: n) select(r <= j, X[r, i] * exp(L[i, j] - L[i, r]), 0) }"},
    {"backwards",
     "op f(m, n) { in X[m, n], L[m, n] "
     "out Y[i: m, j: n] = sum(r: n) select(r >= j, X[i, r] * exp(L[i, r] - L[i, j]), 0) }"},
    {"before",
     "op f(m, n) { in X[m, n], L[m, n] "
     "out Y[i: m, j: n] = sum(r: n) select(r < j, exp(0.5 * L[i, j] - 0.5 * L[i, r]) * X[i, r], 0) "
     "}"},
    {"behind_with_a_condition",
     "op f(m, n) { in X[m, n], L[m, n] "
     "out Y[i: m, j: n] = sum(r: n) select(r > j && r < n - 1, "
     "exp(0.25 * (L[i, r] - L[i, j])) * X[i, r], 0) }"},
    {"with_what_is_the_terms_own",
     "op f(m, n) { in X[m, n], L[m, n] "
     "S[i: m, j: n] = sum(r: n) select(r <= j, "
     "2 * X[i, r] * exp(L[i, j] + 0.125 * X[i, r] - L[i, r]) * X[i, r], 0) "
     "out Y[i: m, j: n] = 1 + S[i, j] }"},
};

// The same where L is a sum of what is never positive: nothing grows on the way.
std::string WithFallingLevels(std::string text) {
  const std::string input = "L[m, n] ";
  return text.replace(text.find(input), input.size(),
                      "D[m, n] "
                      "L[i: m, j: n] = sum(r: n) select(r <= j, -0.5 * abs(D[i, r]), 0) ");
}

class DecayingScanTest : public testing::TestWithParam<Case> {
 protected:
  static void Expect(const std::string& text, int64_t n, const char* sketch) {
    const auto program = Make(text, absl::StrCat("m=9,n=", n));
    SCOPED_TRACE(n);
    ExpectPoints(program, InputsOf(*program), 10, sketch, 1e-4);
  }
};

TEST_P(DecayingScanTest, ThreadsThatShareItComputeTheDefinition) {
  for (const int64_t n : {5, 33, 150}) Expect(GetParam().text, n, "prefix");
}

TEST_P(DecayingScanTest, ChunksComputeTheDefinition) {
  Expect(WithFallingLevels(GetParam().text), 101, "scan/");
}

INSTANTIATE_TEST_SUITE_P(Operators, DecayingScanTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// A level that rises for one element, one that falls for some whose own terms do not count, and one
// that falls by hundreds of powers of e: nothing becomes infinite on the way, and nothing is lost.
TEST(DecayingScan, LevelsMayLieAnywhere) {
  const auto program = Make(
      "op f(m, n) { in X[m, n], L[m, n] "
      "S[i: m, j: n] = sum(r: n) select(r <= j && r != 40, exp(L[i, j] - L[i, r]) * X[i, r], 0) "
      "out Y[i: m, j: n] = select(j == 20, 0, S[i, j]) }",
      "m=9,n=90");
  TensorValues inputs = InputsOf(*program);
  for (size_t i = 0; i < inputs["L"].size(); ++i) {
    const size_t j = i % 90;
    inputs["L"][i] = j == 20 ? 100 : j == 40 ? -120 : j < 60 ? 0 : -200.0 * static_cast<double>(j);
    inputs["X"][i] = static_cast<double>(i % 5) - 2;
  }
  // The definition is infinite or nothing where it rises out of the dip.
  ExpectPoints(program, inputs, 16, "prefix", 1e-4, /*left_out=*/40);
  // Between chunks all would decay to the level of one element.
  EXPECT_EQ(AlgorithmsOf(program).size(), 1);
}

// Levels are subtracted before anything is multiplied by their difference, as the definition says.
TEST(DecayingScan, LevelsMayBeLarge) {
  const auto program = Make(
      "op f(m, n) { in X[m, n], L[m, n] "
      "out Y[i: m, j: n] = sum(r: n) select(r <= j, exp(0.1 * (L[i, r] - L[i, j])) * X[i, r], 0) }",
      "m=9,n=80");
  TensorValues inputs = InputsOf(*program);
  for (size_t i = 0; i < inputs["L"].size(); ++i) {
    inputs["L"][i] = 1e6 + static_cast<double>(i % 80);
  }
  ExpectPoints(program, inputs, 8, "prefix", 2e-5);
}

TEST(DecayingScan, WhatFallsIsKnownBySigns) {
  const auto falls = [](const std::string& levels, const std::string& exponent,
                        const std::string& mask) {
    const Schedule schedule(Make(absl::StrCat("op f(m, n) { in X[m, n], D[m, n] ", levels,
                                              " out Y[i: m, j: n] = sum(r: n) select(", mask,
                                              ", exp(", exponent, ") * X[i, r], 0) }"),
                                 "m=3,n=100"));
    const ScheduledStage& sum = schedule.stage(schedule.FindStage("Y.acc"));
    const auto found = PrefixMaskOf(sum);
    EXPECT_TRUE(found.has_value() && found->level != nullptr) << levels << exponent;
    return found.has_value() && found->level != nullptr && DoLevelsFall(schedule, sum, *found);
  };
  const auto sums = [](const std::string& term, const std::string& mask = "r <= j") {
    return "L[i: m, j: n] = sum(r: n) select(" + mask + ", " + term + ", 0)";
  };
  const char *forwards = "L[i, j] - L[i, r]", *backwards = "L[i, r] - L[i, j]";
  EXPECT_TRUE(falls(sums("-abs(D[i, r])"), forwards, "r <= j"));
  EXPECT_TRUE(falls(sums("min(D[i, r], 0) - 0.01"), forwards, "r < j"));
  EXPECT_TRUE(falls(sums("-0.1 * exp(D[i, r])"), "0.5 * (L[i, j] - L[i, r])", "r <= j"));
  EXPECT_TRUE(falls(sums("D[i, r] * D[i, r]"), backwards, "r <= j"));
  EXPECT_TRUE(falls(sums("-abs(D[i, r])"), backwards, "r >= j"));
  EXPECT_TRUE(falls(sums("-abs(D[i, r])", "r >= j"), forwards, "r >= j"));
  EXPECT_FALSE(falls(sums("D[i, r]"), forwards, "r <= j"));
  EXPECT_FALSE(falls(sums("abs(D[i, r])"), forwards, "r <= j"));
  EXPECT_FALSE(falls(sums("-abs(D[i, r])"), backwards, "r <= j"));
  EXPECT_FALSE(falls(sums("-abs(D[i, r])"), forwards, "r >= j"));
  EXPECT_FALSE(falls("L[i: m, j: n] = -abs(D[i, j])", forwards, "r <= j"));
}

// Threads and chunks compute each term once, or a few times: what is plausible counts so.
TEST(DecayingScan, TakesAFewTermsAnElement) {
  const auto program = Make(WithFallingLevels(kCases[0].text), "m=1,n=4096");
  EXPECT_LT(LeastFlops(*program), 80.0 * 4096);
  const std::vector<Algorithm> algorithms = AlgorithmsOf(program);
  ASSERT_EQ(algorithms.size(), 2);
  EXPECT_EQ(ToString(algorithms[1].steps), "scan(L.acc, 16)\nscan(Y.acc, 16)\n");
}

TEST(DecayingScan, ChunksEndWithPrefixesOfWindows) {
  Schedule schedule(Make(kCases[0].text, "m=3,n=100"));
  ASSERT_TRUE(Apply(ScanChunks{"Y.acc", 16}, schedule).ok());
  const auto stage = [&](const char* name) { return schedule.stage(schedule.FindStage(name)); };
  const auto whole = ScanOf(stage("Y.acc.offset.acc")), window = ScanOf(stage("Y.acc.within"));
  ASSERT_TRUE(whole.has_value());
  ASSERT_TRUE(window.has_value());
  EXPECT_FALSE(whole->in_windows);
  EXPECT_TRUE(window->in_windows);
  EXPECT_NE(whole->level, nullptr);
  EXPECT_EQ(ToString(window->level), "L[i, j]");
  EXPECT_EQ(ToString(window->term), "X[i, j]");
  EXPECT_THAT(std::string(Apply(ScanChunks{"Y.acc.within", 4}, schedule).message()),
              HasSubstr("is no reduction over select(r <= j, e, identity)"));
}

// Long windows that the definition has itself are shared, and in no chunks.
TEST(DecayingScan, WindowsMayBeTheDefinitions) {
  const auto program = Make(
      "op f(m, n) { in X[m, n] out Y[i: m, j: n] = sum(r: 128) "
      "select(r <= j % 128, X[i, j / 128 * 128 + r], 0) }",
      "m=9,n=256");
  EXPECT_EQ(AlgorithmsOf(program).size(), 1);
  ExpectPoints(program, InputsOf(*program), 4, "prefix", 2e-5);
}

TEST(DecayingScan, OtherTermsAreNone) {
  const char* bodies[] = {
      "sum(r: n) select(r <= j, exp(L[i, j]) * X[i, r], 0)",
      "sum(r: n) select(r <= j, exp(L[i, j] - X[i, r]) * X[i, r], 0)",
      "sum(r: n) select(r <= j, exp(L[i, j] - 0.5 * L[i, r]) * X[i, r], 0)",
      "sum(r: n) select(r <= j, exp(L[i, j] - L[i, r]) * X[i, j], 0)",
      "sum(r: n) select(r <= j, exp(L[i, j] - X[i, r]) * exp(L[i, j] - L[i, r]), 0)",
      "sum(r: n) select(r <= j, exp(L[i, j] * L[i, r]) * X[i, r], 0)",
      "sum(r: n) select(r <= j, exp(L[i, j] - L[i, r] + 2 * X[i, j] - 2 * X[i, r]), 0)",
      "sum(r: n, t: m) select(r <= j, exp(L[t, j] - L[t, r]) * X[i, r], 0)",
      "max(r: n) select(r <= j, exp(L[i, j] - L[i, r]) * X[i, r], -inf)",
  };
  for (const char* body : bodies) {
    const Schedule schedule(
        Make(absl::StrCat("op f(m, n) { in X[m, n], L[m, n] out Y[i: m, j: n] = ", body, " }"),
             "m=3,n=100"));
    EXPECT_FALSE(ScanOf(schedule.stage(0)).has_value()) << body;
  }
}

}  // namespace
}  // namespace heddle::search_space::decaying_scan_test
