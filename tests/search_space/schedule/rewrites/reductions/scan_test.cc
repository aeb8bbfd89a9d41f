// Which reductions are of prefixes, what is made of them, and that schedules of that compute the
// definition.
#include "search_space/schedule/rewrites/reductions/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/least_flops.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"

namespace heddle::search_space::scan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const TensorProgram> Make(const std::string& text, const std::string& shape) {
  const auto parsed = ParseOperators(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto program = parsed->at(0).Instantiate(*ParseShape(shape), DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return std::make_shared<const TensorProgram>(*program);
}

constexpr const char* kSums =
    "op f(m, n) { in X[m, n] out Y[i: m, j: n] = sum(r: n) select(r <= j, X[i, r], 0) }";

struct Case {
  const char *name, *text, *stage;
};

constexpr Case kCases[] = {
    {"sums", kSums, "Y.acc"},
    {"sums_of_what_is_before",
     "op f(m, n) { in X[m, n + 1] "
     "out Y[i: m, j: n] = sum(r: n) select(r < j, X[i, r + 2], 0) }",
     "Y.acc"},
    {"sums_from_the_end",
     "op f(m, n) { in X[m, n] out Y[i: m, j: n] = sum(r: n) select(r >= j, X[i, r], 0) }", "Y.acc"},
    {"sums_of_what_is_behind",
     "op f(m, n) { in X[m, n] out Y[i: m, j: n] = sum(r: n) select(j < r, X[i, r - 1], 0) }",
     "Y.acc"},
    {"maxima",
     "op f(m, n) { in X[m, n] out Y[i: m, j: n] = max(r: n) select(r <= j, X[i, r], -inf) }",
     "Y.acc"},
    {"minima",
     "op f(m, n) { in X[m, n] out Y[i: m, j: n] = min(r: n) select(j <= r, X[i, r], inf) }",
     "Y.acc"},
    // What is left out counts as a value of its own, and the last element leaves nothing out.
    {"maxima_above_a_value",
     "op f(m, n) { in X[m, n] out Y[i: m, j: n] = max(r: n) select(r <= j, X[i, r] - 4, -3) }",
     "Y.acc"},
    {"minima_below_a_value_from_the_end",
     "op f(m, n) { in X[m, n] "
     "out Y[i: m, j: n] = min(r: n) select(r >= j, X[i, r] + 4, 3) }",
     "Y.acc"},
    {"maxima_of_what_is_before",
     "op f(m, n) { in X[m, n] S[j: n, i: m] = max(r: n) select(r < j, X[i, r] - 4, -20) "
     "out Y[j: n, i: m] = 2 * S[j, i] }",
     "S.acc"},
    {"products",
     "op f(m, n) { in X[m, n] "
     "out Y[i: m, j: n] = prod(r: n) select(r <= j, select(X[i, r] < 0, -1, 1), 1) }",
     "Y.acc"},
    {"down_columns_and_an_epilogue",
     "op f(m, n) { in X[n, m], B[m] S[j: n, i: m] = sum(r: n) select(r <= j, abs(X[r, i]) * B[i], "
     "0) out Y[j: n, i: m] = max(S[j, i] - B[i], 0) }",
     "S"},
    {"along_a_middle_axis",
     "op f(m, n) { in X[m, n, 5] out Y[i: m, j: n, k: 5] = sum(r: n) select(r > j, X[i, r, k], 0) "
     "}",
     "Y.acc"},
    {"of_one_row",
     "op f(m, n) { in X[n + m] out Y[j: n] = max(r: n) select(r < j, X[r + 1], -inf) }", "Y.acc"},
    {"more_reduced_axes_and_conditions",
     "op f(m, n) { in X[m, 3, n], W[3] out Y[j: n, i: m] = "
     "sum(k: 3, r: n) select(r % 2 == 0 && r <= j, X[i, k, r] * W[k], 0) }",
     "Y.acc"},
};

TensorValues InputsOf(const TensorProgram& program) {
  TensorValues inputs;
  for (const BufferRef& input : program.inputs) {
    std::vector<double>& values = inputs[input->name];
    for (int64_t i = 0; i < input->elements; ++i) {
      values.push_back(static_cast<double>((i * 7 + i / 11) % 9) - 4);
    }
  }
  return inputs;
}

// The output of a lowered program that verifies.
std::vector<double> OutputOf(const Program& lowered, const TensorValues& inputs) {
  const absl::Status verified = Verify(lowered, *FindTarget("h100"));
  EXPECT_TRUE(verified.ok()) << verified;
  TensorValues values = inputs;
  const absl::Status ran = Interpret(lowered, values, {});
  EXPECT_TRUE(ran.ok()) << ran;
  return values[lowered.outputs[0]->name];
}

// Each reduction in a register of what reads it, no loop changed.
absl::StatusOr<Program> LowerSimply(Schedule schedule) {
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (s.is_reduction() || s.is_output || s.materialized) continue;
    const absl::Status inlined = Apply(Step(ComputeInline{s.name()}), schedule);
    if (!inlined.ok()) return inlined;
  }
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (!s.is_reduction()) continue;
    const ScheduledStage& reader = schedule.stage(schedule.ReadersOf(s.tensor.get())[0]);
    const std::vector<Step> steps = {
        SetScope{s.name(), Scope::kLocal},
        ComputeAt{s.name(), reader.name(), reader.loops.back().var->name}};
    const absl::Status attached = Apply(steps, schedule);
    if (!attached.ok()) return attached;
  }
  return Lower(schedule);
}

TEST(ScanTest, ChunksAreReducedThenWhatPrecedesThem) {
  Schedule schedule(Make(kSums, "m=3,n=100"));
  EXPECT_EQ(ScanLength(schedule.stage(0)), 100);
  ASSERT_TRUE(Apply(ScanChunks{"Y.acc", 16}, schedule).ok());
  std::vector<std::string> stages;
  for (const ScheduledStage& s : schedule.stages()) {
    stages.push_back(absl::StrCat(s.name(), " = ", ToString(s.body)));
  }
  EXPECT_THAT(stages, ElementsAre("Y.acc.part.acc = select(j * 16 + r < 100, X[i, j * 16 + r], 0)",
                                  "Y.acc.part = Y.acc.part.acc[i, j]",
                                  "Y.acc.offset.acc = select(r < j, Y.acc.part[i, r], 0)",
                                  "Y.acc.offset = Y.acc.offset.acc[i, j]",
                                  "Y.acc.within = select(r < j % 16 + 1 && j / 16 * 16 + r < 100, "
                                  "X[i, j / 16 * 16 + r], 0)",
                                  "Y.acc = Y.acc.offset[i, j / 16] + Y.acc.within[i, j]",
                                  "Y = Y.acc[i, j]"));
  EXPECT_EQ(ScanLength(schedule.stage(2)), 7);
}

TEST(ScanTest, TakesAFewTermsAnElement) {
  const auto program = Make(kSums, "m=1,n=65536");
  EXPECT_LT(LeastFlops(*program), 21.0 * 65536);
  const std::vector<Algorithm> algorithms = AlgorithmsOf(program);
  ASSERT_EQ(algorithms.size(), 2);
  EXPECT_EQ(ToString(algorithms[1].steps), "scan(Y.acc, 16)\nscan(Y.acc.offset.acc, 16)\n");
  EXPECT_EQ(AlgorithmsOf(Make(kSums, "m=9,n=64")).size(), 1);
}

TEST(ScanTest, RefusesWhatIsNoPrefix) {
  const std::pair<const char*, const char*> cases[] = {
      {"no mask", "sum(r: n) X[j, r]"},
      {"another use of the axis", "sum(r: n) select(r <= j, X[j, r], 0)"},
      {"another condition on the axis", "sum(r: n) select(r <= j && j < 70, X[0, r], 0)"},
      {"no identity", "sum(r: n) select(r <= j, X[0, r], 1)"},
      {"no value of a maximum", "max(r: n) select(r <= j, X[0, r], X[1, r])"},
      {"a maximum with two conditions", "max(r: n) select(r <= j && r < 70, X[0, r], 0)"},
      {"outside of the mask", "sum(r: n) select(r <= j, 0, X[0, r])"},
      {"a shifted mask", "sum(r: n) select(r <= j + 1, X[0, r], 0)"},
      {"every other one", "sum(r: n) select(2 * r <= j, X[0, r], 0)"},
      {"a shorter axis", "sum(r: n - 1) select(r <= j, X[0, r], 0)"},
      {"a factor", "sum(r: n) select(r <= j, X[0, r], 0) * X[0, r]"},
      {"data", "sum(r: n) select(X[0, r] <= j, X[0, r], 0)"},
      {"a quotient of values", "sum(r: n) select(X[0, r] + n / 2 >= j, X[0, r], 0)"},
  };
  for (const auto& [name, e] : cases) {
    const auto program = Make(absl::StrCat("op f(n) { in X[n, n] out Y[j: n] = ", e, " }"), "n=80");
    EXPECT_EQ(AlgorithmsOf(program).size(), 1) << name;
    Schedule schedule(program);
    EXPECT_THAT(std::string(Apply(ScanChunks{"Y.acc", 8}, schedule).message()),
                HasSubstr("is no reduction over select(r <= j, e, identity)"))
        << name;
  }
}

TEST(ScanTest, ChunksHaveSeveralTermsButNotAll) {
  for (const auto& [n, chunk] : {std::pair(33, 33), {33, 1}, {33, 0}, {33, -4}}) {
    Schedule schedule(Make(kSums, absl::StrCat("m=2,n=", n)));
    EXPECT_THAT(std::string(Apply(ScanChunks{"Y.acc", chunk}, schedule).message()),
                HasSubstr("at least 2 and fewer than all"));
  }
}

class ScanOperatorsTest : public testing::TestWithParam<Case> {};

TEST_P(ScanOperatorsTest, ChunksOfAnyLengthComputeTheDefinition) {
  const Case& c = GetParam();
  for (const int n : {3, 31, 33}) {
    const auto program = Make(c.text, absl::StrCat("m=2,n=", n));
    const TensorValues inputs = InputsOf(*program);
    TensorValues expected = inputs;
    EvaluateAll(*program, expected);
    for (const int64_t chunk : {2, 5, 8, 16, n - 1}) {
      if (chunk >= n) continue;
      Schedule schedule(program);
      ASSERT_TRUE(Apply(ScanChunks{c.stage, chunk}, schedule).ok());
      // And once more, where there is something to do.
      (void)Apply(ScanChunks{absl::StrCat(c.stage, ".offset.acc"), 3}, schedule);
      const auto lowered = LowerSimply(schedule);
      ASSERT_TRUE(lowered.ok()) << lowered.status() << " " << n << " " << chunk;
      EXPECT_EQ(OutputOf(*lowered, inputs), expected.at("Y")) << n << " in chunks of " << chunk;
    }
  }
}

TEST_P(ScanOperatorsTest, PointsComputeTheDefinition) {
  const auto program = Make(GetParam().text, "m=3,n=101");
  const TensorValues inputs = InputsOf(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto space = SearchSpace::Create(program, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  ForDrawnPoints(*space, 8, BeginsWith("scan/"), inputs,
                 [&](const Program&, const TensorValues& values) {
                   EXPECT_EQ(values.at("Y"), expected.at("Y"));
                 });
}

// One kernel, of neighbours for rows and of slices for columns, in runs that divide nothing.
TEST_P(ScanOperatorsTest, SharedScansComputeTheDefinition) {
  for (const int n : {5, 33, 101, 700}) {
    const auto program = Make(GetParam().text, absl::StrCat("m=3,n=", n));
    const TensorValues inputs = InputsOf(*program);
    TensorValues expected = inputs;
    EvaluateAll(*program, expected);
    const auto space = SearchSpace::Create(program, *FindTarget("h100"));
    ASSERT_TRUE(space.ok()) << space.status();
    SCOPED_TRACE(n);
    ForDrawnPoints(
        *space, 12, BeginsWith("prefix"), inputs,
        [&](const Program& lowered, const TensorValues& values) {
          EXPECT_EQ(lowered.kernels.size(), 1);
          EXPECT_EQ(values.at("Y"), expected.at("Y"));
        },
        static_cast<uint64_t>(n));
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, ScanOperatorsTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// By running sums, which take no square of the length.
TEST(ScanTest, RowsThatAreLong) {
  for (const int64_t n : {1000, 4097}) {
    const auto program = Make(kSums, absl::StrCat("m=2,n=", n));
    const TensorValues inputs = InputsOf(*program);
    const std::vector<double>& x = inputs.at("X");
    std::vector<double> expected(x.size());
    for (int64_t i = 0; i < 2; ++i) {
      std::partial_sum(x.begin() + i * n, x.begin() + (i + 1) * n, expected.begin() + i * n);
    }
    const auto space = SearchSpace::Create(program, *FindTarget("h100"));
    ASSERT_TRUE(space.ok()) << space.status();
    ForDrawnPoints(
        *space, 1, BeginsWith("scan/stream"), inputs,
        [&](const Program&, const TensorValues& values) { EXPECT_EQ(values.at("Y"), expected); },
        static_cast<uint64_t>(n));
  }
}

// The maximum is of the whole row, the sums are of its prefixes.
TEST(ScanTest, LogarithmsOfSumsOfExponentials) {
  const auto program = Make(
      "op f(m, n) { in X[m, n] M[i: m] = max(r: n) X[i, r] "
      "S[i: m, j: n] = sum(r: n) select(r <= j, exp(X[i, r] - M[i]), 0) "
      "out Y[i: m, j: n] = log(S[i, j]) + M[i] }",
      "m=3,n=90");
  const TensorValues inputs = InputsOf(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto space = SearchSpace::Create(program, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  ForDrawnPoints(*space, 4, BeginsWith("scan/"), inputs,
                 [&](const Program&, const TensorValues& values) {
                   const std::vector<double>& y = values.at("Y");
                   for (size_t i = 0; i < y.size(); ++i) {
                     ASSERT_NEAR(y[i], expected.at("Y")[i], 1e-5) << i;
                   }
                 });
}

}  // namespace
}  // namespace heddle::search_space::scan_test
