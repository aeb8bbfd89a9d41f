// Stages that are read at fixed numbers of an axis: which become one stage for each number, and
// that schedules of these compute the definition.
#include "search_space/schedule/rewrites/axes/take_apart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/algorithms.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::take_apart_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op qkv(b, s, k, h, d) {
  in X[b, s, k], W[3, h, d, k], B[3, h, d]
  T[c: 3, z: b, p: h, i: s, x: d] = sum(r: k) X[z, i, r] * W[c, p, x, r]
  out Q[z: b, p: h, i: s, x: d] = 0.125 * (T[0, z, p, i, x] + B[0, p, x])
  out K[z: b, p: h, i: s, x: d] = T[1, z, p, i, x] + B[1, p, x]
  out V[z: b, p: h, i: s, x: d] = T[2, z, p, i, x] + B[2, p, x]
}
op inner(m, n, k) {
  in X[m, k], W[4, n, k]
  T[i: m, c: 4, j: n] = sum(r: k) X[i, r] * W[c, j, r]
  out Y[i: m, j: n] = T[i, 1, j] - T[i, 3, j]
}
op choosing(m, k) {
  in X[m, k], W[m, k]
  T[c: 2, i: m] = max(r: k) select(c < 1, X[i, r], W[i, r])
  out Y[i: m] = T[0, i]
  out Z[i: m] = T[1, i]
}
op elementwise(m) {
  in X[m, 3]
  T[c: 3, i: m] = (c + 1) * X[i, c]
  out Y[i: m] = T[0, i] * T[2, i]
  out Z[j: m] = sum(i: m) T[1, i] * T[2, j]
}
op all_numbers(m) {
  in X[m]
  T[c: 3, i: m] = 2 * X[i]
  out Y[i: m] = T[0, i] + T[1, i]
  out Z[c: 3, i: m] = T[c, i]
}
op one_number(m) {
  in X[3, m]
  T[c: 3, i: m] = 2 * X[c, i]
  out Y[i: m] = T[1, i] + T[1, 0]
}
op many_numbers(m) {
  in X[17, m]
  T[c: 17, i: m] = 2 * X[c, i]
  out Y[i: m] = T[1, i] + T[2, i]
}
op one_axis(m) {
  in X[3, m]
  T[c: 3] = sum(i: m) X[c, i]
  out Y[i: m] = T[0] + T[1] * X[2, i]
}
op an_output(m) {
  in X[3, m]
  out T[c: 3, i: m] = 2 * X[c, i]
  out Y[i: m] = T[0, i] + T[1, i]
}
op unread(m) {
  in X[m], Z[m]
  T[c: 3, i: m] = select(c < 2, X[i], Z[i])
  out Y[i: m] = T[0, i] + T[1, i]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kFloat32) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

std::vector<std::string> StagesOf(const TensorProgram& program) {
  std::vector<std::string> stages;
  for (const Stage& s : program.stages) {
    std::string text = absl::StrCat(s.name(), "[");
    for (const Var& v : s.axes) absl::StrAppend(&text, v->name, v->extent);
    absl::StrAppend(&text, "|");
    for (const Var& v : s.reduce_axes) absl::StrAppend(&text, v->name, v->extent);
    stages.push_back(absl::StrCat(text, "] = ", ToString(s.body)));
  }
  return stages;
}

std::string RefusalOf(const TensorProgram& program, const std::string& stage,
                      const std::string& axis) {
  const auto apart = WithTakenApart(program, stage, axis);
  return apart.ok() ? "none" : std::string(apart.status().message());
}

TEST(TakeApartTest, EachNumberIsAStage) {
  const auto qkv = WithTakenApart(*Made("qkv", "b=2,s=3,k=4,h=5,d=6"), "T", "c");
  ASSERT_TRUE(qkv.ok()) << qkv.status();
  EXPECT_THAT(StagesOf(**qkv), ElementsAre("T.0[z2p5i3x6|r4] = X[z, i, r] * W[0, p, x, r]",
                                           "T.1[z2p5i3x6|r4] = X[z, i, r] * W[1, p, x, r]",
                                           "T.2[z2p5i3x6|r4] = X[z, i, r] * W[2, p, x, r]",
                                           "Q[z2p5i3x6|] = 0.125 * (T.0[z, p, i, x] + B[0, p, x])",
                                           "K[z2p5i3x6|] = T.1[z, p, i, x] + B[1, p, x]",
                                           "V[z2p5i3x6|] = T.2[z, p, i, x] + B[2, p, x]"));
  // No two stages have an axis in common.
  EXPECT_NE((*qkv)->stages[0].axes[0], (*qkv)->stages[1].axes[0]);
  EXPECT_NE((*qkv)->stages[0].reduce_axes[0], (*qkv)->stages[1].reduce_axes[0]);
}

TEST(TakeApartTest, OnlyNumbersThatAreReadAreMade) {
  const auto inner = WithTakenApart(*Made("inner", "m=2,n=3,k=4"), "T", "c");
  ASSERT_TRUE(inner.ok()) << inner.status();
  EXPECT_THAT(StagesOf(**inner), ElementsAre("T.1[i2j3|r4] = X[i, r] * W[1, j, r]",
                                             "T.3[i2j3|r4] = X[i, r] * W[3, j, r]",
                                             "Y[i2j3|] = T.1[i, j] - T.3[i, j]"));
}

TEST(TakeApartTest, ChoicesByTheNumberAreDecided) {
  const auto choosing = WithTakenApart(*Made("choosing", "m=2,k=3"), "T", "c");
  ASSERT_TRUE(choosing.ok()) << choosing.status();
  EXPECT_THAT(StagesOf(**choosing), ElementsAre("T.0[i2|r3] = X[i, r]", "T.1[i2|r3] = W[i, r]",
                                                "Y[i2|] = T.0[i]", "Z[i2|] = T.1[i]"));
}

TEST(TakeApartTest, OthersAreRefused) {
  EXPECT_EQ(RefusalOf(*Made("all_numbers", "m=4"), "T", "c"),
            "Z reads T at c along c; all that read it have to name a number from 0 to 2 there");
  EXPECT_EQ(RefusalOf(*Made("one_number", "m=4"), "T", "c"),
            "T is read at one number of c; parts are made where it is two at least");
  EXPECT_EQ(RefusalOf(*Made("many_numbers", "m=4"), "T", "c"),
            "c has 17 numbers; at most 16 of them become stages");
  EXPECT_EQ(RefusalOf(*Made("one_axis", "m=4"), "T", "c"),
            "c is the only axis of T; its parts need another one");
  EXPECT_EQ(RefusalOf(*Made("an_output", "m=4"), "T", "c"),
            "T is an output, which stays one tensor; name a stage that others read");
  EXPECT_EQ(RefusalOf(*Made("unread", "m=4"), "T", "c"),
            "Z is read by no part of T that is read itself; parts are made where they need all "
            "tensors");
  const auto inner = Made("inner", "m=2,n=3,k=4");
  EXPECT_EQ(RefusalOf(*inner, "T", "r"), "r is no axis of T, which has i, c, j");
  EXPECT_EQ(RefusalOf(*inner, "S", "c"), "S is no stage of inner");
}

// Stages that are each taken apart do not make programs of any length.
TEST(TakeApartTest, LongProgramsAreLeftAlone) {
  std::string text = "op many(n) { in A[16, n] T[c: 16, i: n] = A[c, i]";
  for (int i = 0; i < 60; ++i) absl::StrAppend(&text, " + A[c, i]");
  absl::StrAppend(&text, " out Y[i: n] = T[0, i]");
  for (int c = 1; c < 16; ++c) absl::StrAppend(&text, " + T[", c, ", i]");
  absl::StrAppend(&text, " }");
  EXPECT_THAT(RefusalOf(*InstantiatedFrom(text, "many", "n=4", DType::kFloat32), "T", "c"),
              HasSubstr("many with the parts of T would be longer than"));
  text = "op stages(n) { in A[16, n] T[c: 16, i: n] = 2 * A[c, i]";
  for (int s = 0; s < 31; ++s) {
    absl::StrAppend(&text, " S", s, "[i: n] = T[", s % 16, ", i] out Y", s, "[i: n] = S", s, "[i]");
  }
  absl::StrAppend(&text, " }");
  EXPECT_THAT(RefusalOf(*InstantiatedFrom(text, "stages", "n=4", DType::kFloat32), "T", "c"),
              HasSubstr("nodes in 64 stages"));
}

TEST(TakeApartTest, ComputesWhatItDid) {
  for (const auto& [op, shape] : {std::pair("qkv", "b=2,s=3,k=4,h=2,d=5"),
                                  {"inner", "m=5,n=3,k=4"},
                                  {"choosing", "m=5,k=6"},
                                  {"elementwise", "m=7"}}) {
    SCOPED_TRACE(op);
    const auto program = Made(op, shape);
    const auto apart = WithTakenApart(*program, "T", "c");
    ASSERT_TRUE(apart.ok()) << apart.status();
    TensorValues expected = IntegerInputs(*program), got = expected;
    EvaluateAll(*program, expected);
    EvaluateAll(**apart, got);
    for (const Stage& s : program->stages) {
      if (!s.is_output) continue;
      EXPECT_EQ(got.at(s.name()), expected.at(s.name())) << s.name();
    }
  }
}

// Of long sums of which nobody reads several parts; what else is read by numbers is made where it
// is read, or stored.
TEST(TakeApartTest, SumsAreAnAlgorithm) {
  const auto steps_of = [](const std::shared_ptr<const TensorProgram>& program) {
    for (const Algorithm& a : AlgorithmsOf(program)) {
      if (a.name == "by_part") return ToString(a.steps);
    }
    return std::string();
  };
  EXPECT_EQ(steps_of(Made("qkv", "b=2,s=3,k=32,h=5,d=6")), "take_apart(T, c)\n");
  EXPECT_EQ(steps_of(Made("qkv", "b=2,s=3,k=31,h=5,d=6")), "");
  EXPECT_EQ(steps_of(Made("inner", "m=2,n=3,k=4")), "");
  EXPECT_EQ(steps_of(Made("elementwise", "m=7")), "");
  EXPECT_EQ(steps_of(Made("choosing", "m=2,k=3")), "");
}

// Each part is a product on matrix units that stores an output.
TEST(TakeApartTest, PartsAreProductsOfMatrices) {
  const auto program = Made("qkv", "b=2,s=64,k=64,h=2,d=64", DType::kBFloat16);
  ExpectPointsCompute(program, *FindTarget("h100"), " by_part/warpgroup+warpgroup+warpgroup:");
}

}  // namespace
}  // namespace heddle::search_space::take_apart_test
