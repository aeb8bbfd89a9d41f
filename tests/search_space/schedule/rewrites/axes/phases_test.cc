// Which sums are computed by phases, what is made of them, and that schedules of that compute the
// definition.
#include "search_space/schedule/rewrites/axes/phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/least_flops.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"

namespace heddle::search_space::phases_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Case {
  const char *name, *text, *shape;
};

constexpr const char* kTransposed1d =
    "op f(n, ci, l, co, k, s, pad) { let ol = (l - 1) * s - 2 * pad + k in X[n, ci, l], W[ci, co, "
    "k] "
    "out Y[b: n, o: co, x: ol] = sum(c: ci, r: k) select((x + pad - r) / s >= 0 && "
    "(x + pad - r) / s < l && (x + pad - r) % s == 0, X[b, c, (x + pad - r) / s], 0) * W[c, o, r] "
    "}";

constexpr Case kCases[] = {
    {"taps_divide", kTransposed1d, "n=2,ci=3,l=9,co=4,k=8,s=4,pad=2"},
    {"taps_do_not_divide", kTransposed1d, "n=1,ci=3,l=7,co=5,k=5,s=3,pad=1"},
    {"fewer_taps_than_phases", kTransposed1d, "n=1,ci=4,l=6,co=4,k=3,s=4,pad=0"},
    {"read_by_an_epilogue",
     "op f(ci, l, co, k) { in X[ci, l], W[ci, co, k], B[co] "
     "Y[o: co, x: 2 * l] = sum(c: ci, r: k) select((x + 1 - r) >= 0 && (x + 1 - r) / 2 < l && "
     "(x + 1 - r) % 2 == 0, X[c, (x + 1 - r) / 2], 0) * W[c, o, r] "
     "out Z[o: co, x: 2 * l] = max(Y[o, x] + B[o], 0) }",
     "ci=5,l=8,co=6,k=4"},
    {"two_dimensions",
     "op f(ci, h, w, co, k) { in X[ci, h, w], W[ci, co, k, k] "
     "out Y[o: co, y: 2 * h, x: 3 * w] = sum(c: ci, q: k, r: k) select((y + 1 - q) % 2 == 0 && "
     "(y + 1 - q) / 2 >= 0 && (y + 1 - q) / 2 < h, select((x + 1 - r) % 3 == 0 && "
     "(x + 1 - r) / 3 >= 0 && (x + 1 - r) / 3 < w, X[c, (y + 1 - q) / 2, (x + 1 - r) / 3], 0), 0) "
     "* W[c, o, q, r] }",
     "ci=3,h=5,w=4,co=4,k=4"},
    {"taps_that_run_forwards",
     "op f(ci, l, co, k) { in X[ci, l], W[ci, co, k] "
     "out Y[o: co, x: 3 * l] = sum(c: ci, r: k) select((x + r - 4) % 3 == 1 && x + r >= 5 && "
     "(x + r - 5) / 3 < l, X[c, (x + r - 5) / 3], 0) * W[c, o, k - 1 - r] }",
     "ci=4,l=7,co=5,k=7"},
    {"positions_read_by_quotients",
     "op f(n, ci, l, co) { in X[n, ci, l], W[ci, co, 6] "
     "out Y[b: n, o: co, x: 3 * l] = sum(c: ci, r: 2) select((x + 1) / 3 >= r && (x + 1) / 3 - r < "
     "l, X[b, c, (x + 1) / 3 - r], 0) * W[c, o, (x + 1) % 3 + 3 * r] }",
     "n=2,ci=4,l=7,co=5"},
    {"two_axes_read_by_quotients",
     "op f(c, h, co) { in X[c, h, h], W[c, co, 2, 3] "
     "out Y[o: co, y: 2 * h - 1, x: 3 * h - 2] = sum(k: c) X[k, (y + 1) / 2, (x + 2) / 3] * "
     "W[k, o, (y + 1) % 2, (x + 2) % 3] }",
     "c=4,h=5,co=3"},
};

std::shared_ptr<const TensorProgram> Make(const char* text, const char* shape) {
  const auto parsed = ParseOperators(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto program = parsed->at(0).Instantiate(*ParseShape(shape), DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return std::make_shared<const TensorProgram>(*program);
}

TEST(PhasesTest, EveryPhaseHasTheTapsThatReachIt) {
  Schedule schedule(Make(kTransposed1d, "n=2,ci=3,l=9,co=4,k=8,s=4,pad=2"));
  ASSERT_TRUE(Apply(Phases{"Y.acc"}, schedule).ok());
  ASSERT_EQ(schedule.stages().size(), 4);
  const ScheduledStage &sum = schedule.stages()[0], &copy = schedule.stages()[1],
                       &whole = schedule.stages()[2];
  EXPECT_EQ(sum.name(), "Y.acc.phases.acc");
  // Y has 36 elements, from the third of the first four on.
  EXPECT_THAT(sum.tensor->shape, ElementsAre(2, 4, 10, 4));
  ASSERT_EQ(sum.reduce_axes.size(), 2);
  EXPECT_EQ(sum.reduce_axes[1]->extent, 2);
  EXPECT_EQ(ToString(sum.body),
            "select(r < x + 1 && x < r + 9, X[b, c, x - r], 0) * W[c, o, r * 4 + x_phase]");
  EXPECT_TRUE(copy.materialized);
  EXPECT_EQ(copy.name(), "Y.acc.phases");
  EXPECT_FALSE(whole.is_reduction());
  EXPECT_EQ(ToString(whole.body), "Y.acc.phases[b, o, (x + 2) / 4, (x + 2) % 4]");
}

TEST(PhasesTest, EveryPhaseOfQuotientsReadsOneBlock) {
  const char* text =
      "op f(k, l, n) { in X[k, l], W[k, n, 4] out Y[o: n, x: 4 * l] = sum(c: k) "
      "select((x + 1) / 4 < l, X[c, (x + 1) / 4], 0) * W[c, o, (x + 1) % 4] }";
  Schedule schedule(Make(text, "k=5,l=6,n=3"));
  ASSERT_TRUE(Apply(Phases{"Y.acc"}, schedule).ok());
  const ScheduledStage &sum = schedule.stages()[0], &whole = schedule.stages()[2];
  EXPECT_THAT(sum.tensor->shape, ElementsAre(3, 7, 4));
  EXPECT_EQ(ToString(sum.body), "select(x < 6, X[c, x], 0) * W[c, o, x_phase]");
  EXPECT_EQ(ToString(whole.body), "Y.acc.phases[o, (x + 1) / 4, (x + 1) % 4]");
}

TEST(PhasesTest, LeavesOutTermsThatAreZero) {
  const auto program = Make(kTransposed1d, "n=1,ci=64,l=256,co=64,k=8,s=4,pad=2");
  EXPECT_LT(LeastFlops(*program), 1.1 / 4 * program->Flops());
}

TEST(PhasesTest, RefusesWhatHasNoStride) {
  const Case cases[] = {
      {"no guard", "op f(n) { in X[n, n] out Y[i: n] = sum(r: n) X[i, r] }", "n=4"},
      {"no zero", "op f(n) { in X[n] out Y[i: n] = sum(r: n) select((i + r) % 2 == 0, X[r], 1) }",
       "n=4"},
      {"no sum", "op f(n) { in X[n] out Y[i: n] = max(r: n) select((i + r) % 2 == 0, X[r], 0) }",
       "n=4"},
      {"two taps a step",
       "op f(n) { in X[n] out Y[i: n] = sum(r: n) select((i + 2 * r) % 3 == 0, X[r], 0) }", "n=4"},
      {"of the result alone",
       "op f(n) { in X[n] out Y[i: n] = sum(r: n) select(i % 2 == 0, X[r], 0) }", "n=4"},
      {"a term of a sum",
       "op f(n) { in X[n] out Y[i: n] = sum(r: n) (select((i + r) % 2 == 0, X[r], 0) + X[i]) }",
       "n=4"},
      {"blocks in both factors",
       "op f(n) { in X[n, n], W[n, n, 4] out Y[x: 4 * n - 1] = sum(r: n) X[r, (x + 1) / 4] * "
       "W[r, (x + 1) / 4, (x + 1) % 4] }",
       "n=4"},
      {"a quotient of the axis alone",
       "op f(n) { in X[n, n], W[n, n, 4] out Y[o: n, x: 4 * n] = sum(r: n) X[r, x / 4] * "
       "W[r, o, x % 4] }",
       "n=4"},
  };
  for (const Case& c : cases) {
    const auto program = Make(c.text, c.shape);
    EXPECT_EQ(AlgorithmsOf(program).size(), 1) << c.name;
    Schedule schedule(program);
    EXPECT_THAT(std::string(Apply(Phases{"Y.acc"}, schedule).message()), HasSubstr("% s == 0"))
        << c.name;
  }
}

class PhasesPointsTest : public testing::TestWithParam<Case> {};

TEST_P(PhasesPointsTest, ComputeTheDefinition) {
  const auto program = Make(GetParam().text, GetParam().shape);
  const Target target = *FindTarget("h100");
  TensorValues inputs;
  for (const BufferRef& input : program->inputs) {
    std::vector<double>& values = inputs[input->name];
    for (int64_t i = 0; i < input->elements; ++i) {
      values.push_back(static_cast<double>((i * 7 + i / 11) % 9) - 4);
    }
  }
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  ForDrawnPoints(*space, 8, BeginsWith("phases/"), inputs,
                 [&](const Program& lowered, const TensorValues& values) {
                   const std::string& output = lowered.outputs[0]->name;
                   EXPECT_EQ(values.at(output), expected.at(output));
                 });
}

INSTANTIATE_TEST_SUITE_P(Operators, PhasesPointsTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::search_space::phases_test
