// Which operands bulk copies fetch, boxes of tensors that tiles are: with indices that are fixed,
// computed from what a tile has one of, or read; up to a tensor's end; of one of two tensors. Every
// point that is drawn lowers and computes the definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/uniform.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::boxes_test {
namespace {

constexpr const char* kOperators = R"(
op grouped(g, m, n, k) {
  in A[g, m, k], B[g / 2, n, k]
  T[z: g, i: m, j: n] = sum(r: k) A[z, i, r] * B[z / 2, j, r]
  out Y[z: g, i: m, j: n] = T[z, i, j]
}
op by_index(g, m, n, k) {
  in A[g, m, k], B[3, n, k], I[g]: index(3)
  T[z: g, i: m, j: n] = sum(r: k) A[z, i, r] * B[I[z], j, r]
  out Y[z: g, i: m, j: n] = T[z, i, j]
}
op packed(g, m, n, k) {
  in A[m, 2, g, k], B[n, g, k]
  T[z: g, i: m, j: n] = sum(r: k) A[i, 1, z, r] * B[j, z, r]
  out Y[z: g, i: m, j: n] = T[z, i, j]
}
op shifted(g, m, n, k) {
  in A[g + 1, g, m, k], B[n, k]
  T[z: g, i: m, j: n] = sum(r: k) A[z + 1, z, i, r] * B[j, r]
  out Y[z: g, i: m, j: n] = T[z, i, j]
}
op padded(g, m, n, k) {
  in A[g, m, k], B[n - 5, k]
  T[z: g, i: m, j: n] = sum(r: k) A[z, i, r] * select(j < n - 5, B[j, r], 0)
  out Y[z: g, i: m, j: n] = T[z, i, j]
}
op last_is_fixed(g, m, n, k) {
  in A[g, m, k, 8], B[n, k]
  T[z: g, i: m, j: n] = sum(r: k) A[z, i, r, 2] * B[j, r]
  out Y[z: g, i: m, j: n] = T[z, i, j]
}
op diagonal(g, m, n, k) {
  in A[m, m, k], B[g, n, k]
  T[z: g, i: m, j: n] = sum(r: k) A[i, i, r] * B[z, j, r]
  out Y[z: g, i: m, j: n] = T[z, i, j]
}
op rows_follow(g, m, n, k) {
  in A[128, k], C[m, k], B[n, k]
  T[i: m + 128, j: n] = sum(r: k) select(i < 128, A[i, r], C[i - 128, r]) * B[j, r]
  out Y[i: m + 128, j: n] = T[i, j] * g
}
op rows_follow_soon(g, m, n, k) {
  in A[32, k], C[m, k], B[n, k]
  T[i: m + 32, j: n] = sum(r: k) select(i < 32, A[i, r], C[i - 32, r]) * B[j, r]
  out Y[i: m + 32, j: n] = T[i, j] * g
}
)";

constexpr const char* kShape = "g=2,m=40,n=48,k=32";

std::shared_ptr<const TensorProgram> Made(const std::string& op) {
  return InstantiatedFrom(kOperators, op, kShape, DType::kBFloat16);
}

bool HasBulkCopies(const std::string& op) {
  const auto space = SearchSpace::Create(Made(op), *FindTarget("h100"));
  EXPECT_TRUE(space.ok()) << space.status();
  return !DrawnPoints(*space, 1, [](const std::string& text) {
            return absl::StartsWith(text, "warpgroup:") && absl::StrContains(text, " bulk=1");
          }).empty();
}

TEST(Boxes, AreWhatATileHasAlongItsAxes) {
  for (const char* op : {"grouped", "by_index", "packed", "shifted", "padded", "rows_follow"}) {
    EXPECT_TRUE(HasBulkCopies(op)) << op;
  }
  for (const char* op : {"last_is_fixed", "diagonal", "rows_follow_soon"}) {
    EXPECT_FALSE(HasBulkCopies(op)) << op;
  }
}

TEST(Boxes, ComputeTheDefinition) {
  for (const char* op : {"grouped", "by_index", "packed", "shifted", "padded", "last_is_fixed",
                         "diagonal", "rows_follow", "rows_follow_soon"}) {
    SCOPED_TRACE(op);
    ExpectPointsCompute(Made(op), *FindTarget("h100"), " warpgroup:");
  }
}

TEST(Boxes, HaveZerosBehindTheEndOfATensor) {
  const BufferRef tensor = MakeBuffer("A", DType::kBFloat16, Scope::kGlobal, {13, 8});
  const Var i = MakeVar("i", 16), j = MakeVar("j", 8);
  const Expr load = Load(tensor, {VarExpr(i), VarExpr(j)}), zero = Float(0, DType::kBFloat16);
  EXPECT_EQ(BulkLoadOf(load), load);
  EXPECT_EQ(BulkLoadOf(Select(VarExpr(i) < Int(13), load, zero)), load);
  EXPECT_EQ(BulkLoadOf(Select(VarExpr(i) < Int(13) && VarExpr(j) < Int(8), load, zero)), load);
  EXPECT_EQ(BulkLoadOf(Select(VarExpr(i) < Int(12), load, zero)), nullptr);
  EXPECT_EQ(BulkLoadOf(Select(VarExpr(j) < Int(13), load, zero)), nullptr);
  EXPECT_EQ(BulkLoadOf(Select(VarExpr(i) < Int(13), load, Float(1, DType::kBFloat16))), nullptr);
  EXPECT_EQ(BulkLoadOf(zero), nullptr);
}

TEST(Conditions, AreSharedByNeighbours) {
  const Var group = MakeVar("g", 9), lane = MakeVar("v", 8);
  const Expr at = VarExpr(group) * Int(8) + VarExpr(lane);
  EXPECT_TRUE(IsUniform(at < Int(24), lane));
  EXPECT_FALSE(IsUniform(at < Int(20), lane));
  EXPECT_TRUE(IsUniform(Int(23) < at && at < Int(64), lane));
  EXPECT_FALSE(IsUniform(Int(24) < at && at < Int(64), lane));
  EXPECT_TRUE(IsUniform(VarExpr(group) < Int(5), lane));
  EXPECT_FALSE(IsUniform(MakeExpr(Op::kEq, {at, Int(24)}), lane));
}

}  // namespace
}  // namespace heddle::search_space::boxes_test
