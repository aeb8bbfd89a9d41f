// Sums of products that are added to each other: which are one sum of all their terms, and that
// schedules of that compute the definition, whichever way tiles of several tensors are fetched.
#include "search_space/schedule/rewrites/algebra/join_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::join_sums_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op cell(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h], B[h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) U[j, r] * H[z, r]
  out Y[z: b, j: h] = max(S[z, j] + B[j] + T[z, j], 0)
}
op columns(b, d, h) {
  in X[b, d], W[d, h], H[b, h], U[h, h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[r, j]
  T[z: b, j: h] = sum(r: h) H[z, r] * U[r, j]
  out Y[z: b, j: h] = S[z, j] + T[z, j]
}
op two_readers(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h], B[h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) U[j, r] * H[z, r]
  out Y[z: b, j: h] = S[z, j] + T[z, j] - B[j]
  out M[z: b] = max(j: h) S[z, j] + T[z, j] + B[j]
}
op three(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) U[j, r] * H[z, r]
  V[z: b, j: h] = sum(r: h) U[j, r] * U[z, r]
  out Y[z: b, j: h] = S[z, j] + T[z, j] + V[z, j]
}
op read_alone(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) U[j, r] * H[z, r]
  out Y[z: b, j: h] = S[z, j] + T[z, j]
  out Z[z: b, j: h] = 2 * T[z, j]
}
op other_place(b, h) {
  in X[h, b], W[h, b], H[h, h], U[h, h]
  S[z: h, j: h] = sum(r: b) X[z, r] * W[j, r]
  T[z: h, j: h] = sum(r: h) U[j, r] * H[z, r]
  out Y[z: h, j: h] = S[z, j] + T[j, z]
}
op both_ways(n, k) {
  in A[n, k], B[n, k]
  out T[i: n, j: n] = sum(r: k) A[i, r] * B[j, r] + B[i, r] * A[j, r]
}
op complex(m, n, k) {
  in A[m, k, 2], B[k, n, 2]
  R[i: m, j: n] = sum(r: k) A[i, r, 0] * B[r, j, 0] - A[i, r, 1] * B[r, j, 1]
  I[i: m, j: n] = sum(r: k) A[i, r, 0] * B[r, j, 1] + A[i, r, 1] * B[r, j, 0]
  out Y[i: m, j: n, p: 2] = select(p == 0, R[i, j], I[i, j])
}
op three_products(n, k) {
  in A[n, k], B[n, k]
  out T[i: n, j: n] = sum(r: k) A[i, r] * B[j, r] - (B[i, r] * A[j, r] - A[i, r] * A[j, r])
}
op one_is_none(n, k) {
  in A[n, k], B[n, k]
  out S[i: n, j: n] = sum(r: k) A[i, r] * B[j, r] + A[i, r]
}
op subtracted(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) U[j, r] * H[z, r]
  out Y[z: b, j: h] = S[z, j] - T[z, j]
}
op adapter(b, d, h, k) {
  in X[b, d], W[h, d], V[b, k], U[h, k]
  A[z: b, r: k]: bfloat16 = max(V[z, r], 0)
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: k) A[z, r] * U[j, r]
  out Y[z: b, j: h] = S[z, j] + 0.5 * T[z, j]
}
op adapters(b, d, h, e, k) {
  in X[b, d], W[h, d], V[b, e, k], U[e, h, k]
  A[z: b, q: e, r: k]: bfloat16 = max(V[z, q, r], 0)
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(q: e, r: k) A[z, q, r] * U[q, j, r]
  out Y[z: b, j: h] = S[z, j] + T[z, j] * 2
}
op scaled_inputs(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) H[z, r] * U[j, r]
  out Y[z: b, j: h] = S[z, j] + 0.5 * T[z, j]
}
op scaled_square(b, d, h) {
  in X[b, d], W[b, d], V[b, h]
  A[z: b, r: h]: bfloat16 = max(V[z, r], 0)
  S[z: b, j: b] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: b] = sum(r: h) A[z, r] * A[j, r]
  out Y[z: b, j: b] = S[z, j] + 0.5 * T[z, j]
}
op scaled_far(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h]
  A[z: b, r: h]: bfloat16 = max(H[z, r], 0)
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) A[z, r] * U[j, r]
  out Y[z: b, j: h] = S[z, j] + 10000000 * T[z, j]
}
op scaled_float16(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h]
  A[z: b, r: h]: float16 = max(H[z, r], 0)
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) A[z, r] * U[j, r]
  out Y[z: b, j: h] = S[z, j] + 2 * T[z, j]
}
op scaled_twice(b, d, h) {
  in X[b, d], W[h, d], H[b, h], U[h, h]
  A[z: b, r: h]: bfloat16 = max(H[z, r], 0)
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) A[z, r] * U[j, r]
  out Y[z: b, j: h] = S[z, j] + 0.5 * T[z, j]
  out Z[z: b, j: h] = S[z, j] + 2 * T[z, j]
}
op windows(c, w) {
  in X[c, w + 2], W[c, c, 3], H[c, w], U[c, c]
  S[q: c, x: w] = sum(r: c) H[r, x] * U[q, r]
  T[q: c, x: w] = sum(r: c, e: 3) X[r, x + e] * W[q, r, e]
  out Y[q: c, x: w] = S[q, x] + T[q, x]
}
op other_factors(b, d, h) {
  in X[b, d], W[h, d], H[b, h, h], U[h]
  S[z: b, j: h] = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h] = sum(r: h) H[z, j, r] * U[r]
  out Y[z: b, j: h] = S[z, j] + T[z, j]
}
op wider(b, d, h) {
  in X[b, d], W[h, d], H[b, h]: float32, U[h, h]: float32
  S[z: b, j: h]: float32 = sum(r: d) X[z, r] * W[j, r]
  T[z: b, j: h]: float32 = sum(r: h) U[j, r] * H[z, r]
  out Y[z: b, j: h] = S[z, j] + T[z, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kBFloat16) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

std::string TextOf(const Stage& stage) {
  std::string text = absl::StrCat(stage.name(), "[");
  for (const Var& v : stage.axes) absl::StrAppend(&text, v->name);
  absl::StrAppend(&text, "|");
  for (const Var& v : stage.reduce_axes) absl::StrAppend(&text, v->name, v->extent);
  return absl::StrCat(text, "] = ", ToString(stage.body));
}

TEST(JoinSumsTest, HasTheTermsOfBoth) {
  const auto cell = WithJoinedSums(*Made("cell", "b=2,d=3,h=4"), "S");
  ASSERT_TRUE(cell.ok()) << cell.status();
  ASSERT_EQ((*cell)->stages.size(), 2U);
  EXPECT_EQ(TextOf((*cell)->stages[0]),
            "S[zj|r7] = float32(select(r < 3, X[z, r], H[z, r - 3])) * "
            "float32(select(r < 3, W[j, r], U[j, r - 3]))");
  EXPECT_EQ(TextOf((*cell)->stages[1]), "Y[zj|] = max(S[z, j] + float32(B[j]), 0)");
  // Either may be the one that is kept.
  const auto other = WithJoinedSums(*Made("cell", "b=2,d=3,h=4"), "T");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(TextOf((*other)->stages[0]), HasSubstr("T[zj|r7] = float32(select(r < 4, U[j, r]"));
  const auto readers = WithJoinedSums(*Made("two_readers", "b=2,d=3,h=4"), "S");
  ASSERT_TRUE(readers.ok()) << readers.status();
  EXPECT_EQ(TextOf((*readers)->stages[2]), "M[z|j4] = S[z, j] + float32(B[j])");
  const auto three = WithJoinedSums(*Made("three", "b=4,d=3,h=4"), "S");
  ASSERT_TRUE(three.ok()) << three.status();
  ASSERT_EQ((*three)->stages.size(), 2U);
  EXPECT_THAT(TextOf((*three)->stages[0]), HasSubstr("S[zj|r11] = "));
  EXPECT_EQ(TextOf((*three)->stages[1]), "Y[zj|] = S[z, j]");
}

// The scale is the stage's that nothing but the sum reads; several axes are numbered as one.
TEST(JoinSumsTest, HasTheTermsOfScaledSums) {
  const auto adapter = WithJoinedSums(*Made("adapter", "b=2,d=3,h=4,k=2"), "S");
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  ASSERT_EQ((*adapter)->stages.size(), 3U);
  EXPECT_EQ(TextOf((*adapter)->stages[0]), "A[zr|] = bfloat16(max(float32(V[z, r]), 0) * 0.5)");
  EXPECT_EQ(TextOf((*adapter)->stages[1]),
            "S[zj|r5] = float32(select(r < 3, X[z, r], A[z, r - 3])) * "
            "float32(select(r < 3, W[j, r], U[j, r - 3]))");
  EXPECT_EQ(TextOf((*adapter)->stages[2]), "Y[zj|] = S[z, j]");
  const auto several = WithJoinedSums(*Made("adapters", "b=2,d=3,h=4,e=5,k=2"), "S");
  ASSERT_TRUE(several.ok()) << several.status();
  EXPECT_THAT(TextOf((*several)->stages[1]), HasSubstr("S[zj|r13] = "));
  for (const auto& [op, shape] :
       {std::pair("adapter", "b=4,d=16,h=8,k=4"), {"adapters", "b=4,d=16,h=8,e=3,k=4"}}) {
    const auto program = Made(op, shape);
    TensorValues expected = IntegerInputs(*program), got = expected;
    EvaluateAll(*program, expected);
    EvaluateAll(**WithJoinedSums(*program, "S"), got);
    EXPECT_EQ(got.at("Y"), expected.at("Y")) << op;
  }
  ExpectPointsCompute(Made("adapters", "b=24,d=32,h=40,e=4,k=8"), *FindTarget("h100"), " join");
}

// One sum of several products is one of all their terms by itself.
TEST(JoinSumsTest, HasTheTermsOfAllProducts) {
  const auto both = WithJoinedSums(*Made("both_ways", "n=4,k=3", DType::kFloat32), "T");
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ((*both)->stages.size(), 1U);
  EXPECT_TRUE((*both)->stages[0].is_output);
  EXPECT_EQ(TextOf((*both)->stages[0]),
            "T[ij|r6] = select(r < 3, A[i, r], B[i, r - 3]) * select(r < 3, B[j, r], A[j, r - 3])");
  const auto complex = WithJoinedSums(*Made("complex", "m=4,n=5,k=3", DType::kFloat32), "R");
  ASSERT_TRUE(complex.ok()) << complex.status();
  EXPECT_EQ(TextOf((*complex)->stages[0]),
            "R[ij|r6] = select(r < 3, A[i, r, 0], A[i, r - 3, 1]) * "
            "select(r < 3, B[r, j, 0], -B[r - 3, j, 1])");
  EXPECT_THAT(std::string(WithJoinedSums(*Made("one_is_none", "n=4,k=3"), "S").status().message()),
              HasSubstr("nor one of several products that are alike"));
}

TEST(JoinSumsTest, OthersAreRefused) {
  for (const auto& [op, shape] : {std::pair("read_alone", "b=2,d=3,h=4"),
                                  {"other_place", "b=2,h=4"},
                                  {"subtracted", "b=2,d=3,h=4"},
                                  {"other_factors", "b=2,d=3,h=4"},
                                  {"wider", "b=2,d=3,h=4"},
                                  {"scaled_inputs", "b=2,d=3,h=4"},
                                  {"scaled_twice", "b=2,d=3,h=4"},
                                  {"scaled_square", "b=2,d=3,h=4"},
                                  {"scaled_far", "b=2,d=3,h=4"},
                                  {"windows", "c=2,w=3"}}) {
    EXPECT_THAT(std::string(WithJoinedSums(*Made(op, shape), "S").status().message()),
                HasSubstr("S is no sum of products of two elements to which all"))
        << op;
  }
  EXPECT_FALSE(WithJoinedSums(*Made("scaled_float16", "b=2,d=3,h=4", DType::kFloat16), "S").ok());
  EXPECT_THAT(std::string(WithJoinedSums(*Made("cell", "b=2,d=3,h=4"), "Z").status().message()),
              HasSubstr("Z is no stage of cell"));
}

// Long sums of elements cost no time.
TEST(JoinSumsTest, LongProgramsAreLeftAlone) {
  std::string text = "op many(n) { in A[n, n] ", sum = "A[i, j]";
  for (int s = 0; s < 2; ++s) {
    absl::StrAppend(&text, "S", s, "[i: n, j: n] = sum(r: n) A[i, r] * A[r, j] ");
    absl::StrAppend(&sum, " + S", s, "[i, j]");
  }
  for (int term = 0; term < 50; ++term) {
    absl::StrAppend(&text, "T", term, "[i: n, j: n] = A[i, j]");
    for (int i = 0; i < 20; ++i) absl::StrAppend(&text, " + A[i, j]");
    absl::StrAppend(&text, " ");
    absl::StrAppend(&sum, " + T", term, "[i, j]");
  }
  absl::StrAppend(&text, "out Y[i: n, j: n] = ", sum, " }");
  const auto program = InstantiatedFrom(text, "many", "n=4", DType::kFloat32);
  EXPECT_THAT(std::string(WithJoinedSums(*program, "S0").status().message()),
              HasSubstr("many is longer than"));
}

TEST(JoinSumsTest, PointsComputeTheDefinition) {
  const Target target = *FindTarget("h100");
  for (const auto& [op, shape] : {std::pair("cell", "b=9,d=7,h=12"),
                                  {"columns", "b=8,d=5,h=9"},
                                  {"two_readers", "b=5,d=8,h=7"},
                                  {"three", "b=6,d=4,h=6"}}) {
    SCOPED_TRACE(op);
    ExpectPointsCompute(Made(op, shape, DType::kFloat32), target, " join/tile");
  }
  for (const auto& [op, shape] : {std::pair("both_ways", "n=9,k=7"),
                                  {"complex", "m=6,n=8,k=5"},
                                  {"three_products", "n=9,k=6"}}) {
    SCOPED_TRACE(op);
    ExpectPointsCompute(Made(op, shape, DType::kFloat32), target, " join/tile");
  }
  ExpectPointsCompute(Made("both_ways", "n=32,k=32"), target, " join/matrix");
}

// Each element of a tile is copied from the tensor that has it.
TEST(JoinSumsTest, TilesOfTwoTensorsAreCopied) {
  const Target target = *FindTarget("h100");
  for (const char* op : {"cell", "columns"}) {
    SCOPED_TRACE(op);
    const auto program = Made(op, "b=24,d=32,h=64");
    ExpectPointsCompute(program, target, " join/matrix:");
    ExpectPointsCompute(program, target, " join/warpgroup:");
  }
}

// Boxes are of one of the tensors, so that tiles end where it does.
TEST(JoinSumsTest, BoxesAreOfOneTensor) {
  for (const char* op : {"cell", "columns"}) {
    SCOPED_TRACE(op);
    const auto program = Made(op, "b=24,d=64,h=64");
    const SearchSpace space = *SearchSpace::Create(program, *FindTarget("h100"));
    const std::vector<Point> points = DrawnPoints(space, 8, [](const std::string& text) {
      return absl::StartsWith(text, "join/warpgroup:") && absl::StrContains(text, " bulk=1");
    });
    ASSERT_FALSE(points.empty());
    for (const Point& point : points) {
      const auto lowered = space.Lower(point);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const std::string loops = ToString(*lowered);
      for (const char* tensor : {"X", "W", "H", "U"}) {
        EXPECT_THAT(loops,
                    ContainsRegex(absl::StrCat("bulk_copy S.operand[^=]* = ", tensor, "\\[")));
      }
      ExpectComputes(*program, *lowered, 1);
    }
  }
  // Few tiles end behind 24 terms.
  const SearchSpace odd = *SearchSpace::Create(Made("cell", "b=24,d=24,h=64"), *FindTarget("h100"));
  EXPECT_TRUE(DrawnPoints(odd, 1, [](const std::string& text) {
                return absl::StartsWith(text, "join/warpgroup:") &&
                       absl::StrContains(text, " bulk=1");
              }).empty());
}

}  // namespace
}  // namespace heddle::search_space::join_sums_test
