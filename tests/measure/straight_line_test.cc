#include "measure/codegen/straight_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "search_space/ir/simplify.h"
#include "tests/measure/sample_programs.h"

namespace heddle::measure {
namespace {

using namespace search_space;  // NOLINT: expressions are built from these names
using ::testing::ElementsAre;

// C[i, j] += A[i] * B[j] for j < 2 and i < 3, i backwards where `backwards` of j is not 0; A in
// `scope`.
Stmt Nest(Scope scope, const std::function<Expr(Expr j)>& backwards) {
  const auto a = tests::Buf("A", scope, {3}), b = tests::Buf("B", Scope::kLocal, {2}),
             c = tests::Buf("C", Scope::kLocal, {3, 2});
  const Var i = MakeVar("i", 3), j = MakeVar("j", 2);
  const Expr old = Load(c, {VarExpr(i), VarExpr(j)});
  auto inner = std::make_shared<StmtNode>(*For(
      i, ForKind::kUnrolled,
      Store(c, {VarExpr(i), VarExpr(j)}, old + Load(a, {VarExpr(i)}) * Load(b, {VarExpr(j)}))));
  inner->condition = backwards(VarExpr(j));
  return For(j, ForKind::kUnrolled, inner);
}

std::vector<std::string> Elements(const Stmt& statements) {
  std::vector<std::string> out;
  VisitStmts(statements, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kStore) return;
    out.push_back(ToString(Simplify(s.indices[0])) + "," + ToString(Simplify(s.indices[1])));
  });
  return out;
}

TEST(StraightLine, GoesToAndFroAsTheLoopsDo) {
  const Stmt nest = Nest(Scope::kLocal, [](Expr j) { return j % Int(2); });
  ASSERT_TRUE(IsStraightLine(nest));
  EXPECT_THAT(Elements(StraightLine(nest)), ElementsAre("0,0", "1,0", "2,0", "2,1", "1,1", "0,1"));
}

TEST(StraightLine, LeavesOtherNestsAlone) {
  const auto forwards = [](Expr) { return Int(0); };
  EXPECT_TRUE(IsStraightLine(Nest(Scope::kLocal, forwards)));
  EXPECT_FALSE(IsStraightLine(Nest(Scope::kShared, forwards))) << "reads memory";
  const Var outside = MakeVar("k", 4);
  EXPECT_FALSE(IsStraightLine(Nest(Scope::kLocal, [&](Expr) { return VarExpr(outside) % Int(2); })))
      << "the order depends on a loop around it";
  const auto c = tests::Buf("C", Scope::kLocal, {3});
  const Var i = MakeVar("i", 3), many = MakeVar("k", 1000);
  EXPECT_FALSE(
      IsStraightLine(For(i, ForKind::kUnrolled, Store(c, {VarExpr(i)}, Float(0, DType::kFloat32)))))
      << "sets, updates nothing";
  EXPECT_FALSE(IsStraightLine(For(many, ForKind::kUnrolled, Nest(Scope::kLocal, forwards))))
      << "too long";
}

}  // namespace
}  // namespace heddle::measure
