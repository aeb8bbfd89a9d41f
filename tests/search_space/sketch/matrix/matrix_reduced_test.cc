// Products on matrix units whose elements are reduced over another axis in the same kernel.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::matrix_reduced_test {
namespace {

constexpr const char* kOperators = R"(
op indexer(t, s, h, d) {
  in Q[t, h, d], K[s, d], W[t, h]: float32
  T[i: t, p: h, j: s] = sum(x: d) Q[i, p, x] * K[j, x]
  out Y[i: t, j: s]: float32 = sum(p: h) max(T[i, p, j], 0) * W[i, p]
}
op maxout(m, n, k, e) {
  in X[m, k], W[e, k, n], B[e, n]: float32
  T[p: e, i: m, j: n] = sum(r: k) X[i, r] * W[p, r, j]
  out Y[i: m, j: n]: float32 = max(p: e) T[p, i, j] + B[p, j]
}
op experts(b, m, n, k, e) {
  in X[b, m, k], W[e, n, k], G[b, m, e]: float32
  T[z: b, i: m, p: e, j: n] = sum(r: k) X[z, i, r] * W[p, j, r]
  S[z: b, i: m, p: e, j: n] = T[z, i, p, j] * abs(T[z, i, p, j])
  A[z: b, i: m, j: n] = sum(p: e) G[z, i, p] * S[z, i, p, j]
  out Y[z: b, i: m, j: n]: float32 = A[z, i, j] * 2
}
op heads(b, h, s, t, d) {
  in Q[b, h, s, d], K[b, h, t, d], M[b, h, s]: float32
  T[z: b, p: h, i: s, j: t] = sum(x: d) Q[z, p, i, x] * K[z, p, j, x]
  out Y[z: b, i: s, j: t]: float32 = sum(p: h) abs(T[z, p, i, j] - M[z, p, i])
}
op of_tiles(m, n, k) {
  in A[m, k], B[n, k]
  T[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out Y[i: m]: float32 = sum(j: n) abs(T[i, j])
}
op read_twice(m, n, k, e) {
  in X[m, k], W[e, n, k]
  T[p: e, i: m, j: n] = sum(r: k) X[i, r] * W[p, j, r]
  out Y[i: m, j: n]: float32 = max(p: e) T[p, i, j]
  out Z[i: m, j: n]: float32 = min(p: e) T[p, i, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

struct Case {
  const char *op, *shape;
};

class MatrixReduced : public testing::TestWithParam<Case> {};

// Of integers all of it is exact.
TEST_P(MatrixReduced, OneKernelStoresWhatIsReduced) {
  const auto program = Made(GetParam().op, GetParam().shape);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 6, BeginsWith("reduced/warpgroup_reduced"), inputs,
                 [&](const Program& lowered, const TensorValues& got) {
                   EXPECT_EQ(lowered.kernels.size(), 1);
                   ExpectOutputsNear(*program, expected, got, 0);
                 });
}

INSTANTIATE_TEST_SUITE_P(All, MatrixReduced,
                         testing::Values(Case{"indexer", "t=70,s=48,h=5,d=40"},
                                         Case{"maxout", "m=96,n=64,k=48,e=4"},
                                         Case{"experts", "b=2,m=64,n=64,k=32,e=3"},
                                         Case{"heads", "b=2,h=4,s=64,t=96,d=32"}),
                         [](const auto& info) { return info.param.op; });

TEST(MatrixReducedTest, ByInstructionsOfWarpsAsWell) {
  const auto program = Made("heads", "b=1,h=3,s=48,t=64,d=32");
  const auto space = *SearchSpace::Create(program, *FindTarget("a100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 4, BeginsWith("reduced/matrix_reduced"), inputs,
                 [&](const Program&, const TensorValues& got) {
                   ExpectOutputsNear(*program, expected, got, 0);
                 });
}

// Along a tile's own axis parts of rows are reduced (row_parts), and what several read is stored.
TEST(MatrixReducedTest, OnlyOverAxesThatTilesLeaveAlone) {
  for (const auto& [op, shape] :
       {std::pair("of_tiles", "m=96,n=64,k=48"), {"read_twice", "m=96,n=64,k=48,e=4"}}) {
    const auto space = *SearchSpace::Create(Made(op, shape), *FindTarget("h100"));
    EXPECT_TRUE(DrawnPoints(space, 1, BeginsWith("reduced/"), 1, 300).empty()) << op;
  }
}

}  // namespace
}  // namespace heddle::search_space::matrix_reduced_test
