// Few long rows of an input, in parts that one pass makes all reductions of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/rewrites/reductions/reduce_in_parts.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::long_rows_test {
namespace {

using testing::HasSubstr;

constexpr const char* kOperators = R"(
op sample(b, v) {
  in X[b, v], U[b, v]: float32
  out I[z: b]: float32 = argmax(j: v) X[z, j] / 2 - abs(U[z, j])
  M[z: b] = max(j: v) X[z, j]
  S[z: b] = sum(j: v) exp(X[z, j] - M[z])
  out P[z: b]: float32 = M[z] + log(S[z])
}
op cross_entropy(b, v) {
  in X[b, v], T[b]: index(v)
  M[z: b] = max(j: v) X[z, j]
  S[z: b] = sum(j: v) exp(X[z, j] - M[z])
  out L[z: b]: float32 = M[z] + log(S[z]) - X[z, T[z]]
}
op softmax_rows(b, v) {
  in X[b, v]
  M[z: b] = max(j: v) X[z, j]
  E[z: b, j: v] = exp(X[z, j] - M[z])
  S[z: b] = sum(j: v) E[z, j]
  out Y[z: b, j: v]: float32 = E[z, j] / S[z]
}
op entropy(s, b, v) {
  in X[s, b, v]
  M[y: s, z: b] = max(j: v) X[y, z, j]
  E[y: s, z: b, j: v] = exp(X[y, z, j] - M[y, z])
  S[y: s, z: b] = sum(j: v) E[y, z, j]
  H[y: s, z: b] = sum(j: v) E[y, z, j] * X[y, z, j]
  out Y[y: s, z: b]: float32 = M[y, z] + log(S[y, z]) - H[y, z] / S[y, z]
}
op log_sum_exp(n) {
  in X[n]
  M[a: 1] = max(j: n) X[j]
  S[a: 1] = sum(j: n) exp(X[j] - M[a])
  out Y[a: 1]: float32 = M[a] + log(S[a])
}
op numbers(b, v) {
  in X[b, v]: index(9)
  M[z: b] = max(j: v) X[z, j]
  S[z: b] = sum(j: v) exp(X[z, j] - M[z])
  out Y[z: b]: float32 = M[z] + log(S[z])
}
op places(b, v, w) {
  in X[b, v]: index(w), E[w]
  M[z: b] = max(j: v) E[X[z, j]]
  S[z: b] = sum(j: v) exp(E[X[z, j]] - M[z])
  out Y[z: b]: float32 = M[z] + log(S[z])
}
op one_alone(b, v) {
  in X[b, v]
  out M[z: b] = max(j: v) X[z, j]
}
op deviation(b, v) {
  in X[b, v]
  M[z: b] = max(j: v) X[z, j]
  out D[z: b] = sum(j: v) abs(X[z, j] - M[z])
}
op left_alone(b, v) {
  in X[b, v]
  M[z: b] = max(j: v) X[z, j]
  S[z: b] = sum(j: v) exp(X[z, j] - M[z])
  D[z: b] = sum(j: v) abs(max(X[z, j], -9) - M[z])
  out Y[z: b]: float32 = log(S[z]) + D[z]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kFloat32) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

std::string Worth(const std::string& op, const std::string& shape) {
  const auto rows = LongRowsWorthReducingInParts(*Made(op, shape), /*most_rows=*/100);
  return rows ? absl::StrCat(rows->stage, " of ", rows->columns) : "";
}

TEST(LongRowsTest, SeveralReductionsOfFewOfThem) {
  EXPECT_EQ(Worth("sample", "b=3,v=9000"), "X of 9000");
  EXPECT_EQ(Worth("cross_entropy", "b=100,v=4096"), "X of 4096");
  EXPECT_EQ(Worth("log_sum_exp", "n=9000"), "X of 9000");
  EXPECT_EQ(Worth("left_alone", "b=3,v=9000"), "X of 9000");
  EXPECT_EQ(Worth("numbers", "b=3,v=9001"), "X of 9001");
  EXPECT_EQ(Worth("cross_entropy", "b=1,v=9000"), "X of 9000");
  EXPECT_EQ(Worth("places", "b=3,v=9000,w=50"), "");  // has no copies
  EXPECT_EQ(Worth("cross_entropy", "b=101,v=4096"), "");
  EXPECT_EQ(Worth("cross_entropy", "b=100,v=4095"), "");
  EXPECT_EQ(Worth("one_alone", "b=3,v=9000"), "");
  EXPECT_EQ(Worth("deviation", "b=3,v=9000"), "");  // parts cannot make good for another maximum
}

TEST(LongRowsTest, OnceAndNotByPlaces) {
  const auto why = [](const TensorProgram& program) {
    return std::string(WithReductionsInParts(program, "X", 4096).status().message());
  };
  const auto once = WithReductionsInParts(*Made("sample", "b=3,v=9000"), "X", 4096);
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_THAT(why(**once), HasSubstr("X has parts already"));
  EXPECT_THAT(why(*Made("places", "b=3,v=9000,w=50")), HasSubstr("X says where others are read"));
}

// How many kernels read the input.
int64_t Readers(const Program& lowered) {
  return std::count_if(lowered.kernels.begin(), lowered.kernels.end(), [](const Kernel& k) {
    return std::any_of(k.arguments.begin(), k.arguments.end(),
                       [](const BufferRef& b) { return b->name == "X"; });
  });
}

struct Case {
  const char *op, *shape;
  DType type;
  int64_t readers;
};

class LongRows : public testing::TestWithParam<Case> {};

// All elements of some parts are infinite, as where a mask leaves nothing of them.
TEST_P(LongRows, OnePassReducesAllParts) {
  const Case& c = GetParam();
  const auto program = Made(c.op, c.shape, c.type);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  TensorValues inputs = IntegerInputs(*program);
  std::vector<double>& values = inputs.at("X");
  std::fill(values.begin() + 100, values.begin() + 6300, -std::numeric_limits<double>::infinity());
  if (inputs.contains("T")) std::fill(inputs.at("T").begin(), inputs.at("T").end(), 7);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 4, BeginsWith("row_parts/"), inputs,
                 [&](const Program& lowered, const TensorValues& got) {
                   EXPECT_EQ(Readers(lowered), c.readers);
                   ExpectOutputsNear(*program, expected, got, 1e-5);
                 });
}

INSTANTIATE_TEST_SUITE_P(
    All, LongRows,
    testing::Values(Case{"sample", "b=2,v=9001", DType::kFloat32, 1},
                    Case{"cross_entropy", "b=3,v=9000", DType::kBFloat16, 2},  // and the label's
                    Case{"softmax_rows", "b=2,v=12288", DType::kFloat32, 2},  // and for each output
                    Case{"log_sum_exp", "n=40000", DType::kFloat32, 1},
                    Case{"left_alone", "b=2,v=9000", DType::kFloat32, 2}),
    [](const auto& info) { return info.param.op; });

class OtherLongRows : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(OtherLongRows, ComputeTheirProgram) {
  const auto program = Made(GetParam().first, GetParam().second);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 4, BeginsWith("row_parts/"), inputs,
                 [&](const Program&, const TensorValues& got) {
                   ExpectOutputsNear(*program, expected, got, 1e-5);
                 });
}

INSTANTIATE_TEST_SUITE_P(
    All, OtherLongRows,
    testing::Values(std::pair("entropy", "s=2,b=2,v=8200"),
                    std::pair("softmax_rows", "b=2,v=8192"),  // two parts of two results
                    std::pair("numbers", "b=2,v=9001"), std::pair("cross_entropy", "b=1,v=9001")),
    [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace heddle::search_space::long_rows_test
