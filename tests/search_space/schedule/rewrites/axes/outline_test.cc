// Parts of elementwise stages that several elements share: which become stages of their own, and
// that what is left computes the same.
#include "search_space/schedule/rewrites/axes/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::outline_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op biased(b, p, s) {
  in T[b, p, s, s], B[5, p], U[2 * s - 1]: index(5)
  out S[z: b, h: p, i: s, j: s] = T[z, h, i, j] + B[U[j - i + s - 1], h]
}
op scaled_twice(b, n) {
  in T[b, n], B[5], C[5], I[n]: index(5)
  out Y[z: b, i: n] = T[z, i] * (2 * B[I[i]] + C[I[i]]) - max(B[I[i]], 0)
}
op under_a_condition(b, n) {
  in T[b, n], B[5], I[n]: index(5)
  out Y[z: b, i: n] = select(i < 3, B[I[i]], T[z, i]) + select(T[z, i] > 0, B[I[i]], 0)
}
op of_all_axes(b, n) {
  in T[b, n], B[5, b], I[n]: index(5)
  out Y[z: b, i: n] = T[z, i] + B[I[i], z]
}
op no_index(b, n) {
  in T[b, n], B[n]
  out Y[z: b, i: n] = T[z, i] + exp(B[i])
}
op of_terms(b, n) {
  in T[b, n], B[5], I[n]: index(5)
  out Y[z: b] = sum(i: n) T[z, i] * B[I[i]]
}
op table_attention(b, h, s, d) {
  in Q[b, s, h, d], K[b, s, h, d], V[b, s, h, d], B[8, h], U[2 * s - 1]: index(8)
  T[z: b, p: h, i: s, j: s] = sum(x: d) Q[z, i, p, x] * K[z, j, p, x]
  S[z: b, p: h, i: s, j: s] = T[z, p, i, j] + B[U[j - i + s - 1], p]
  M[z: b, p: h, i: s] = max(j: s) S[z, p, i, j]
  E[z: b, p: h, i: s, j: s]: bfloat16 = exp(S[z, p, i, j] - M[z, p, i])
  Z[z: b, p: h, i: s] = sum(j: s) E[z, p, i, j]
  O[z: b, p: h, i: s, x: d] = sum(j: s) E[z, p, i, j] * V[z, j, p, x]
  out Y[z: b, i: s, p: h, x: d] = O[z, p, i, x] / Z[z, p, i]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

std::vector<std::string> StagesOf(const TensorProgram& program) {
  std::vector<std::string> stages;
  for (const Stage& s : program.stages) {
    std::string text = absl::StrCat(NameOf(s.tensor->dtype), " ", s.name(), "[");
    for (const Var& v : s.axes) absl::StrAppend(&text, v->name);
    stages.push_back(absl::StrCat(text, "] = ", ToString(s.body)));
  }
  return stages;
}

TEST(OutlineTest, PartsHaveTheAxesThatTheyMention) {
  const auto biased = WithOutlined(*Made("biased", "b=4,p=2,s=3"), "S");
  ASSERT_TRUE(biased.ok()) << biased.status();
  EXPECT_THAT(
      StagesOf(**biased),
      ElementsAre(AllOf(HasSubstr("bfloat16 S.outer0[hij] = B["), HasSubstr(", h]")),
                  "bfloat16 S[zhij] = float32(T[z, h, i, j]) + float32(S.outer0[h, i, j])"));
  // What stands twice is one stage.
  const auto twice = WithOutlined(*Made("scaled_twice", "b=4,n=6"), "Y");
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_THAT(StagesOf(**twice),
              ElementsAre(HasSubstr("float32 Y.outer0[i] = 2 * float32(B["),
                          HasSubstr("float32 Y.outer1[i] = max(float32(B["),
                          "bfloat16 Y[zi] = float32(T[z, i]) * Y.outer0[i] - Y.outer1[i]"));
  EXPECT_TRUE(IsOutlined("Y.outer1"));
  EXPECT_FALSE(IsOutlined("Y"));
}

TEST(OutlineTest, OthersAreRefused) {
  for (const auto& [op, shape] : {std::pair("under_a_condition", "b=4,n=6"),
                                  {"of_all_axes", "b=4,n=6"},
                                  {"no_index", "b=64,n=6"},
                                  {"of_terms", "b=4,n=6"},
                                  {"scaled_twice", "b=3,n=6"}}) {
    EXPECT_THAT(std::string(WithOutlined(*Made(op, shape), "Y").status().message()),
                HasSubstr("Y is no elementwise stage with a part that is read where"))
        << op;
  }
}

TEST(OutlineTest, ComputesWhatItDid) {
  for (const auto& [op, shape] :
       {std::pair("biased", "b=4,p=2,s=3"), {"scaled_twice", "b=5,n=7"}}) {
    const auto program = Made(op, shape);
    const auto outlined = WithOutlined(*program, program->stages.back().name());
    ASSERT_TRUE(outlined.ok()) << outlined.status();
    TensorValues expected = IntegerInputs(*program), got = expected;
    EvaluateAll(*program, expected);
    EvaluateAll(**outlined, got);
    const std::string& output = program->stages.back().name();
    EXPECT_EQ(got.at(output), expected.at(output)) << op;
  }
}

// Of attention it is stored by a kernel in front of the chain, of whole matrices and of others.
TEST(OutlineTest, TablesOfBiasesAreStored) {
  for (const char* shape : {"b=16,h=12,s=512,d=64", "b=16,h=12,s=500,d=64"}) {
    const auto space = SearchSpace::Create(Made("table_attention", shape), *FindTarget("h100"));
    ASSERT_TRUE(space.ok()) << space.status();
    const std::vector<Point> points = DrawnPoints(*space, 1, [](const std::string& text) {
      return absl::StartsWith(text, "outline/") &&
             absl::StrContains(text, "stream+rolling_warpgroup[stored=S.outer0]");
    });
    ASSERT_EQ(points.size(), 1U) << shape;
    const auto lowered = space->Lower(points[0]);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_TRUE(Verify(*lowered, space->target()).ok());
  }
}

}  // namespace
}  // namespace heddle::search_space::outline_test
