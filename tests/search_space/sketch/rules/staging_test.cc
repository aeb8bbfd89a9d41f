// Tensors that are read across their rows, several at a time, through tiles in shared memory.
#include <gtest/gtest.h>

#include <string>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/stmt.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::staging_test {
namespace {

constexpr const char* kOperators = R"(
op two_across(m, n) {
  in A[m, n], B[m, n]: float32, C[n, m]
  out Y[j: n, i: m] = A[i, j] * B[i, j] + C[j, i]
}
op with_a_stage(m, n) {
  in A[m, n], B[m, n]
  S[i: m] = sum(r: n) A[i, r]
  P[i: m, j: n] = A[i, j] + S[i]
  out Y[j: n, i: m] = P[i, j] * B[i, j]
}
op bordered(n, c, h, w, p) {
  in X[n, c, h, w]
  out Y[z: n, y: h + 2 * p, x: w + 2 * p, k: c] = select(y >= p && y < h + p && x >= p && x < w + p, X[z, k, y - p, x - p], 0)
}
op side_by_side(n, c, d, w) {
  in X[n, c, w], Z[n, d, w], B[c + d]
  out Y[z: n, x: w + 2, k: c + d] = select(x >= 2, select(k < c, X[z, k, x - 2], Z[z, k - c, x - 2]), 0) * B[k]
}
op read_twice(n, c, w) {
  in X[n, c, w]
  out Y[z: n, x: w + 1, k: c] = select(x >= 1, select(X[z, k, x - 1] > 0, X[z, k, x - 1], 0.5), 0)
}
op enlarged(n, c, h, w) {
  in X[n, c, h, w]
  out Y[z: n, y: 2 * h + 2, x: 2 * w + 2, k: c] = select(y >= 1 && y < 2 * h + 1 && x >= 1 && x < 2 * w + 1, X[z, k, (y - 1) / 2, (x - 1) / 2], 0)
}
op every_other(n, c, w) {
  in X[n, c, 2 * w + 1]
  out Y[z: n, x: w, k: c] = X[z, k, 2 * x + 1]
}
op thirds(n, c, w) {
  in X[n, c, w]
  out Y[z: n, x: 3 * w, k: c] = X[z, k, x / 3]
}
op backwards(n, c, w) {
  in X[n, c, w]
  out Y[z: n, x: w, k: c] = X[z, k, w - 1 - x]
}
)";

struct Case {
  const char *op, *shape;
  DType type;
  const char* like;
};

class Staging : public testing::TestWithParam<Case> {};

TEST_P(Staging, ComputesItsProgram) {
  const auto program =
      InstantiatedFrom(kOperators, GetParam().op, GetParam().shape, GetParam().type);
  ExpectPointsCompute(program, *FindTarget("h100"), GetParam().like);
}

INSTANTIATE_TEST_SUITE_P(
    All, Staging,
    testing::Values(Case{"two_across", "m=50,n=72", DType::kFloat32, " stage:"},
                    Case{"two_across", "m=50,n=72", DType::kBFloat16, " stage:"},
                    Case{"with_a_stage", "m=24,n=40", DType::kFloat32, "+stage:"},
                    Case{"bordered", "n=2,c=24,h=5,w=40,p=2", DType::kFloat16, " stage:"},
                    Case{"bordered", "n=1,c=37,h=3,w=33,p=1", DType::kFloat32, " stage:"},
                    Case{"side_by_side", "n=2,c=16,d=24,w=40", DType::kBFloat16, " stage:"},
                    Case{"read_twice", "n=2,c=33,w=67", DType::kFloat16, " stage:"},
                    Case{"enlarged", "n=1,c=24,h=5,w=20", DType::kFloat16, " stage:"},
                    Case{"every_other", "n=2,c=24,w=36", DType::kBFloat16, " stage:"}),
    [](const auto& info) { return std::string(info.param.op) + std::to_string(info.index); });

// What lies along rows that begin a border later is fetched in whole vectors of memory.
TEST(StagingTest, ShiftedRowsAreFetchedFromWhereVectorsBegin) {
  const auto program =
      InstantiatedFrom(kOperators, "bordered", "n=4,c=64,h=14,w=64,p=1", DType::kFloat16);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto point = space.Parse("stage: rows=32 columns=64 threads_y=8 vector=8 pad=2 fetch=8");
  ASSERT_TRUE(point.ok()) << point.status();
  const auto lowered = space.Lower(*point);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  size_t wide = 0, narrow = 0;
  VisitStmts(lowered->kernels.at(0).body, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kStore) return;
    for (const Expr& load : LoadsIn(s.value)) {
      if (load->buffer->scope == Scope::kGlobal) ++(load->lanes == 8 ? wide : narrow);
    }
  });
  EXPECT_GT(wide, 0U);
  EXPECT_EQ(narrow, 0U);
}

// Where a tile of a row begins inside what a third of it is read for, nobody sees where that ends.
TEST(StagingTest, RowsThatAreReadBackwardsOrByThirdsAreNone) {
  for (const char* op : {"backwards", "thirds"}) {
    const auto program = InstantiatedFrom(kOperators, op, "n=2,c=64,w=64", DType::kFloat32);
    const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
    EXPECT_FALSE(space.Parse("stage: rows=32 columns=64 threads_y=8 vector=1 pad=1 fetch=1").ok())
        << op;
  }
}

}  // namespace
}  // namespace heddle::search_space::staging_test
