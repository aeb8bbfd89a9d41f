#include "measure/codegen/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "search_space/ir/expr/simplify.h"
#include "tests/measure/sample_programs.h"

namespace heddle::measure {
namespace {

using namespace search_space;  // NOLINT: expressions are built from these names

// for k: B[0] = M[k], then C[i, j] = C[i, j] + A[i] * B[j] for j < 2 and i < 3, i backwards where
// `backwards` of j is not 0; A in `scope`.
Stmt Nest(Scope scope, ForKind outer, const std::function<Expr(Expr j, Expr k)>& backwards,
          int64_t more = 1) {
  const auto a = tests::Buf("A", scope, {3}), b = tests::Buf("B", Scope::kLocal, {2}),
             c = tests::Buf("C", Scope::kLocal, {3, 2});
  const Var i = MakeVar("i", 3), j = MakeVar("j", 2), k = MakeVar("k", 4), m = MakeVar("m", more);
  const Expr old = Load(c, {VarExpr(i), VarExpr(j)});
  auto inner = std::make_shared<StmtNode>(*For(
      i, ForKind::kUnrolled,
      Store(c, {VarExpr(i), VarExpr(j)}, old + Load(a, {VarExpr(i)}) * Load(b, {VarExpr(j)}))));
  inner->condition = backwards(VarExpr(j), VarExpr(k));
  const Stmt nest = For(j, ForKind::kUnrolled, inner);
  const auto memory = tests::Buf("M", Scope::kShared, {4});
  return For(k, outer,
             Seq({Store(b, {Int(0)}, Load(memory, {VarExpr(k)})),
                  more == 1 ? nest : For(m, ForKind::kUnrolled, nest)}));
}

// With the sums in indices carried out.
Stmt Simplified(const Stmt& s) {
  return RewriteStmt(s, nullptr, [](const Expr& e) {
    return Rewrite(e, [](const Expr& node) -> Expr {
      return node->type == DType::kInt64 ? Simplify(node) : nullptr;
    });
  });
}

Expr ToAndFro(const Expr& j, const Expr&) { return j % Int(2); }

TEST(WriteOutUpdates, GoesToAndFroAsTheLoopsDo) {
  const Stmt written = WriteOutUpdates(Nest(Scope::kLocal, ForKind::kUnrolled, ToAndFro));
  EXPECT_EQ(ToString(Simplified(written)), R"(unrolled k in 0..4
  B[0] = M[k]
  # Unrolled: j < 2, i < 3 to and fro
  C[0, 0] = C[0, 0] + A[0] * B[0]
  C[1, 0] = C[1, 0] + A[1] * B[0]
  C[2, 0] = C[2, 0] + A[2] * B[0]
  C[2, 1] = C[2, 1] + A[2] * B[1]
  C[1, 1] = C[1, 1] + A[1] * B[1]
  C[0, 1] = C[0, 1] + A[0] * B[1]
)");
}

TEST(WriteOutUpdates, LeavesOtherNestsAlone) {
  const auto is_left = [](const Stmt& s) { return WriteOutUpdates(s) == s; };
  EXPECT_FALSE(is_left(Nest(Scope::kLocal, ForKind::kUnrolled, ToAndFro)));
  EXPECT_TRUE(is_left(Nest(Scope::kLocal, ForKind::kSerial, ToAndFro))) << "in no unrolled loop";
  EXPECT_TRUE(is_left(Nest(Scope::kShared, ForKind::kUnrolled, ToAndFro))) << "reads memory";
  EXPECT_TRUE(is_left(Nest(Scope::kLocal, ForKind::kUnrolled, [](Expr, Expr k) {
    return k % Int(2);
  }))) << "the order depends on a loop around it";
  const auto c = tests::Buf("C", Scope::kLocal, {3});
  const Var i = MakeVar("i", 3), k = MakeVar("k", 4);
  EXPECT_TRUE(
      is_left(For(k, ForKind::kUnrolled,
                  For(i, ForKind::kUnrolled, Store(c, {VarExpr(i)}, Float(0, DType::kFloat32))))))
      << "sets, updates nothing";
}

TEST(WriteOutUpdates, OfANestThatIsTooLongOnlyItsParts) {
  const Stmt s = WriteOutUpdates(Nest(Scope::kLocal, ForKind::kSerial, ToAndFro, 1000));
  const Stmt& many = s->body[0]->body[1];
  ASSERT_EQ(many->kind, StmtNode::Kind::kFor) << ToString(s);
  EXPECT_EQ(many->body[0]->kind, StmtNode::Kind::kSeq) << ToString(s);
}

TEST(HoistInvariants, OnlyWhatIsCostlyAndFixed) {
  const auto xs = tests::Buf("X", Scope::kGlobal, {128}), g = tests::Buf("G", Scope::kGlobal, {1}),
             a = tests::Buf("A", Scope::kLocal, {2}), s = tests::Buf("S", Scope::kLocal, {1});
  const Var k = MakeVar("k", 8), t = MakeVar("t", 16), i = MakeVar("i", 2);
  const auto of = [](Op op, const Expr& x) { return MakeExpr(op, {x}); };
  const Expr fixed = of(Op::kLog, Load(a, {VarExpr(i)}) + Load(g, {Int(0)}));
  const Expr sum = Load(s, {Int(0)}), x = Load(xs, {VarExpr(k) * Int(16) + VarExpr(t)});
  const auto loop = [&](ForKind kind, const Expr& value) {
    return For(i, ForKind::kUnrolled, For(k, kind, Store(s, {Int(0)}, sum + value)));
  };
  const Stmt hoisted =
      HoistInvariants(loop(ForKind::kSerial, of(Op::kExp, x / Load(a, {Int(0)}) - fixed) * fixed *
                                                 of(Op::kRsqrt, Load(a, {Int(1)}))));
  EXPECT_EQ(ToString(hoisted), R"(unrolled i in 0..2
  alloc local float32 invariant[2]
  invariant[0] = log(A[i] + G[0])
  invariant[1] = rsqrt(A[1])
  for k in 0..8
    S[0] = S[0] + exp(X[k * 16 + t] / A[0] - invariant[0]) * invariant[0] * invariant[1]
)");
  const auto is_left = [&](ForKind kind, const Expr& value) {
    const Stmt before = loop(kind, value);
    return HoistInvariants(before) == before;
  };
  EXPECT_FALSE(is_left(ForKind::kSerial, fixed));
  EXPECT_TRUE(is_left(ForKind::kUnrolled, fixed)) << "compilers see that";
  EXPECT_TRUE(is_left(ForKind::kSerial, of(Op::kLog, sum))) << "changes";
  EXPECT_TRUE(is_left(ForKind::kSerial, of(Op::kLog, x))) << "differs";
  EXPECT_TRUE(is_left(ForKind::kSerial, of(Op::kLog, Load(xs, {VarExpr(t)})))) << "may not exist";
  EXPECT_TRUE(is_left(ForKind::kSerial, Load(a, {Int(0)}) * Load(a, {Int(1)}))) << "costs little";
}

// for s rotating r: R[r] = 0, or Y[r] = 0.
Stmt Rotating(Scope scope, int64_t extent) {
  auto loop = std::make_shared<StmtNode>(
      *For(MakeVar("s", extent), ForKind::kSerial,
           Store(tests::Buf("R", scope, {2}), {Int(0)}, Float(0, DType::kFloat32))));
  loop->rotating = MakeVar("r", 2);
  const Stmt& store = loop->body[0];
  loop->body[0] = Store(store->buffer, {VarExpr(loop->rotating)}, store->value);
  return loop;
}

TEST(UnrollRotatingRegisters, UnrollsWhatWouldPutRegistersIntoMemory) {
  EXPECT_EQ(UnrollRotatingRegisters(Rotating(Scope::kLocal, 6))->for_kind, ForKind::kUnrolled);
  EXPECT_EQ(UnrollRotatingRegisters(Rotating(Scope::kShared, 6))->for_kind, ForKind::kSerial);
  EXPECT_EQ(UnrollRotatingRegisters(Rotating(Scope::kLocal, 4096))->for_kind, ForKind::kSerial)
      << "an array that no registers hold";
}

// Y[i] = X[i] (`guarded`: where i < 100) for i = 32 k + 8 e + t % 8, in a loop over k < 4 and an
// unrolled one over e.
Stmt Copy(bool guarded, ForKind outer) {
  const auto xs = tests::Buf("X", Scope::kGlobal, {128}),
             ys = tests::Buf("Y", Scope::kShared, {128});
  const Var k = MakeVar("k", 4), e = MakeVar("e", 4), t = MakeVar("t", 32);
  const Expr i = VarExpr(k) * Int(32) + VarExpr(e) * Int(8) + VarExpr(t) % Int(8);
  const Expr x = Load(xs, {i});
  const Expr value = guarded ? Select(i < Int(100), x, Float(0, DType::kFloat32)) : x;
  return For(k, outer, For(e, ForKind::kUnrolled, Store(ys, {i}, value)));
}

TEST(CountFromPointers, GuardedLoadsGoThroughPointersThatMove) {
  EXPECT_EQ(ToString(CountFromPointers(Copy(/*guarded=*/true, ForKind::kSerial))),
            R"(let X = &X[t % 8] moving by 32
for k in 0..4
  let Y = &Y[k * 32 + t % 8]
  unrolled e in 0..4
    Y[e * 8] = select(k * 32 + e * 8 + t % 8 < 100, X[e * 8], 0)
)");
}

TEST(CountFromPointers, AnUnrolledNestHasPointersBeforeIt) {
  EXPECT_EQ(ToString(CountFromPointers(Copy(/*guarded=*/false, ForKind::kUnrolled))),
            R"(let X = &X[t % 8]
let Y = &Y[t % 8]
unrolled k in 0..4
  unrolled e in 0..4
    Y[k * 32 + e * 8] = X[k * 32 + e * 8]
)");
}

TEST(CountFromPointers, AGuardedLoadOfAnUnrolledNestHasAnOffset) {
  EXPECT_EQ(ToString(CountFromPointers(Copy(/*guarded=*/true, ForKind::kUnrolled))),
            R"(let X = t % 8
let X = &X[0]
let Y = &Y[t % 8]
unrolled k in 0..4
  unrolled e in 0..4
    Y[k * 32 + e * 8] = select(k * 32 + e * 8 + t % 8 < 100, X[X + (k * 32 + e * 8)], 0)
)");
}

// Expressions are graphs: rewriting one must not write out what stands in several places.
TEST(CountFromPointers, KeepsWhatIsShared) {
  const auto xs = tests::Buf("X", Scope::kGlobal, {128}), y = tests::Buf("Y", Scope::kLocal, {1});
  const Var e = MakeVar("e", 4), t = MakeVar("t", 32);
  Expr value = Load(xs, {VarExpr(t) / Int(8) * Int(8) + VarExpr(e)});
  for (int i = 0; i < 60; ++i) value = value + value;
  const Stmt out = CountFromPointers(For(e, ForKind::kUnrolled, Store(y, {Int(0)}, value)));
  const Expr sum = out->body[0]->body[0]->value;
  EXPECT_EQ(sum->args[0], sum->args[1]);
}

}  // namespace
}  // namespace heddle::measure
