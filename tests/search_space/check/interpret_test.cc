#include "search_space/check/interpret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/search_space/mutate.h"
#include "tests/search_space/sample_programs.h"

namespace heddle::tests {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// What a missing order looks like depends on which of two threads comes first.
auto IsUnordered() {
  return AnyOf(HasSubstr("data race"), HasSubstr("is not waited for"), HasSubstr("read of shared"));
}

std::string Report(const Program& p, uint64_t seed = 1) {
  TensorValues values = InputsFor(p);
  return std::string(Interpret(p, values, {.seed = seed}).message());
}

void ExpectMatmul(const Program& p, uint64_t seed) {
  TensorValues values = InputsFor(p);
  const absl::Status status = Interpret(p, values, {.seed = seed});
  ASSERT_TRUE(status.ok()) << status;
  const auto &a = values["A"], &b = values["B"], &c = values["C"];
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      double sum = 0;
      for (int k = 0; k < 8; ++k) sum += a[i * 8 + k] * b[k * 8 + j];
      EXPECT_EQ(c[i * 8 + j], sum) << i << ", " << j;
    }
  }
}

TEST(Interpret, VectorAddScalarAndVector) {
  for (const Program& p : {VectorAdd(37), VectorAdd(36, /*vector=*/true)}) {
    TensorValues values = InputsFor(p);
    const absl::Status status = Interpret(p, values);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < values["C"].size(); ++i) {
      EXPECT_EQ(values["C"][i], values["A"][i] + values["B"][i]);
    }
  }
}

TEST(Interpret, MatmulStagedInSharedMemory) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    ExpectMatmul(Matmul(Staging::kPlain), seed);
    ExpectMatmul(Matmul(Staging::kDoubleBuffered), seed);
    ExpectMatmul(Matmul(Staging::kAsync), seed);
  }
}

TEST(Interpret, EveryRemovedBarrierIsARace) {
  for (Staging staging : {Staging::kPlain, Staging::kDoubleBuffered, Staging::kAsync}) {
    int removed = 0;
    while (auto p = Remove(Matmul(staging), Removal::kBarrier, removed)) {
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        EXPECT_THAT(Report(*p, seed), IsUnordered()) << ToString(*p);
      }
      ++removed;
    }
    EXPECT_EQ(removed, staging == Staging::kAsync ? 1 : 2);
  }
}

// Atomic updates go with one another, and with nothing else that no barrier separates from them.
TEST(Interpret, AtomicUpdates) {
  const Program histogram = Histogram();
  TensorValues values;
  for (int i = 0; i < 32; ++i) values["A"].push_back(i % 3);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TensorValues got = values;
    const absl::Status status = Interpret(histogram, got, {.seed = seed});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(got["C"], (std::vector<double>{11, 11, 10, 0}));
    for (int barrier = 0; barrier < 2; ++barrier) {
      TensorValues of_racing = values;
      const Program racing = *Remove(histogram, Removal::kBarrier, barrier);
      EXPECT_THAT(std::string(Interpret(racing, of_racing, {.seed = seed}).message()),
                  AnyOf(HasSubstr("data race"), HasSubstr("it was never written")))
          << ToString(racing);
    }
  }
}

// Those of global memory go with one another, too, on what a kernel before them stored.
TEST(Interpret, AtomicUpdatesOfGlobalMemory) {
  TensorValues values;
  for (int i = 0; i < 32; ++i) values["A"].push_back(i);
  for (const int lanes : {1, 4}) {
    const Program updates = Updates(lanes);
    TensorValues got = values;
    const absl::Status status = Interpret(updates, got, {.seed = 1});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(got["C"], (std::vector<double>{112, 120, 128, 136}));
    Program without = updates;
    without.kernels.erase(without.kernels.begin());
    EXPECT_THAT(Report(without), HasSubstr("atomic update of global C[0]: it was never written"));
    // A store beside them is of nobody knows when.
    Program racing = updates;
    racing.kernels[1].body = Seq({racing.kernels[0].body, racing.kernels[1].body});
    racing.kernels.erase(racing.kernels.begin());
    EXPECT_THAT(Report(racing),
                AnyOf(HasSubstr("wrote in the same kernel"), HasSubstr("it was never written"),
                      HasSubstr("has written already")));
  }
}

TEST(Interpret, RemovedWaitLeavesCopiesPending) {
  const auto p = Remove(Matmul(Staging::kAsync), Removal::kAsyncWait, 0);
  ASSERT_TRUE(p.has_value());
  EXPECT_THAT(Report(*p), HasSubstr("is not waited for"));
}

// Waiting until one group is pending is one too many in flight.
TEST(Interpret, TooWeakWaitLeavesCopiesPending) {
  Program p = Matmul(Staging::kAsync);
  p.kernels[0].body = RewriteStmt(
      p.kernels[0].body,
      [](const Stmt& s) -> Stmt {
        const bool wait =
            s->kind == StmtNode::Kind::kIntrin && s->intrinsic == Intrinsic::kAsyncWait;
        return wait ? AsyncWait(1) : nullptr;
      },
      nullptr);
  EXPECT_THAT(Report(p), HasSubstr("is not waited for"));
}

// A wait covers committed groups only.
TEST(Interpret, UncommittedCopiesStayPending) {
  Program p = Matmul(Staging::kAsync);
  p.kernels[0].body = RewriteStmt(
      p.kernels[0].body,
      [](const Stmt& s) -> Stmt {
        const bool commit =
            s->kind == StmtNode::Kind::kIntrin && s->intrinsic == Intrinsic::kAsyncCommit;
        return commit ? Comment("removed") : nullptr;
      },
      nullptr);
  EXPECT_THAT(Report(p), HasSubstr("is not waited for"));
}

// The other threads see a copy after a barrier that follows the wait, not one before it.
TEST(Interpret, BarrierBeforeTheWaitIsTooEarly) {
  const auto s = F32("S", Scope::kShared, {8}), a = F32("A", Scope::kGlobal, {8}),
             c = F32("C", Scope::kGlobal, {8});
  const Var block = MakeVar("b", 1), thread = MakeVar("t", 8), v = MakeVar("v", 1);
  const auto program = [&](std::vector<Stmt> order) {
    return OneKernel({a}, c, block, thread, Seq(std::move(order)), {{s, 0}});
  };
  const Stmt copy =
      Seq({For(v, ForKind::kVector, AsyncCopy(s, {V(thread)}, Load(a, {V(thread)}), 1)),
           AsyncCommit()});
  const Stmt use = Store(c, {V(thread)}, Load(s, {Int(7) - V(thread)}));
  EXPECT_EQ(Report(program({copy, AsyncWait(0), Barrier(), use})), "");
  EXPECT_THAT(Report(program({copy, Barrier(), AsyncWait(0), use})), IsUnordered());
}

TEST(Interpret, RemovedGuardIsOutOfBounds) {
  const auto p = Remove(VectorAdd(37), Removal::kIf, 0);
  ASSERT_TRUE(p.has_value());
  EXPECT_THAT(Report(*p), ContainsRegex("access out of bounds: global A.3[789]., shape .37."));
  const auto q = Remove(Matmul(Staging::kDoubleBuffered), Removal::kIf, 0);
  ASSERT_TRUE(q.has_value());
  EXPECT_THAT(Report(*q), HasSubstr("access out of bounds: global A["));
}

TEST(Interpret, SelectIsLazyAndItsRemovalIsOutOfBounds) {
  const auto a = F32("A", Scope::kGlobal, {4}), c = F32("C", Scope::kGlobal, {8});
  const Var block = MakeVar("b", 1), thread = MakeVar("t", 8);
  const Expr t = V(thread);
  const Program p =
      OneKernel({a}, c, block, thread,
                Store(c, {t}, Select(t < Int(4), Load(a, {t}), Float(0, DType::kFloat32))));
  EXPECT_EQ(Report(p), "");
  EXPECT_THAT(Report(*Remove(p, Removal::kSelect, 0)), HasSubstr("access out of bounds"));
}

TEST(Interpret, SwappedBufferIsARace) {
  // Fetching into the buffer that is being multiplied.
  Program p = Matmul(Staging::kDoubleBuffered);
  p.kernels[0].body = RewriteStmt(p.kernels[0].body, nullptr, [](const Expr& e) {
    return e->op == Op::kSub && IsInt(e->args[0], 1) ? e->args[1] : e;
  });
  EXPECT_THAT(Report(p), HasSubstr("data race"));
}

TEST(Interpret, OverlapInTheArenaShows) {
  Program p = Matmul(Staging::kPlain);
  p.kernels[0].shared[1].offset = 16;
  EXPECT_NE(Report(p), "");
  // Without a race: the same thread writes both, reads the first.
  const auto x = F32("X", Scope::kShared, {4}), y = F32("Y", Scope::kShared, {4}),
             c = F32("C", Scope::kGlobal, {1});
  const Stmt body =
      Seq({Store(x, {Int(0)}, Float(1, DType::kFloat32)),
           Store(y, {Int(0)}, Float(2, DType::kFloat32)), Store(c, {Int(0)}, Load(x, {Int(0)}))});
  EXPECT_THAT(Report(OneKernel({}, c, MakeVar("b", 1), MakeVar("t", 1), body, {{x, 0}, {y, 0}})),
              HasSubstr("overwritten through Y"));
}

TEST(Interpret, UnwrittenMemory) {
  const auto c = F32("C", Scope::kGlobal, {2}), s = F32("S", Scope::kShared, {2}),
             r = F32("R", Scope::kLocal, {2}), w = F32("W", Scope::kGlobal, {2});
  const Var block = MakeVar("b", 1), thread = MakeVar("t", 2);
  const Expr t = V(thread);
  EXPECT_THAT(Report(OneKernel({}, c, block, thread, Store(c, {t}, Load(s, {t})), {{s, 0}})),
              ContainsRegex("shared S.[01].: it was never written"));
  // The second round of a loop does not see what the first left in a local buffer.
  const Var i = MakeVar("i", 2);
  const Stmt keep = Alloc(r, Seq({If(V(i) < Int(1), Store(r, {Int(0)}, Float(1, DType::kFloat32))),
                                  Store(c, {t}, Load(r, {Int(0)}))}));
  EXPECT_THAT(Report(OneKernel({}, c, block, thread, For(i, ForKind::kSerial, keep))),
              HasSubstr("local R[0]: it was never written"));
  Program p = OneKernel({w}, c, block, thread, Store(c, {t}, Load(w, {t})));
  p.inputs.clear();
  p.workspaces = {w};
  EXPECT_THAT(Report(p), ContainsRegex("global W.[01].: it was never written"));
  EXPECT_THAT(Report(OneKernel({}, c, block, thread,
                               If(t < Int(1), Store(c, {t}, Float(1, DType::kFloat32))))),
              HasSubstr("no thread wrote element 1 of output C"));
}

// Shared memory of one block says nothing to the next.
TEST(Interpret, SharedMemoryIsForgottenBetweenBlocks) {
  const auto c = F32("C", Scope::kGlobal, {2}), s = F32("S", Scope::kShared, {1});
  const Var block = MakeVar("b", 2);
  const Stmt body = Seq({If(V(block) < Int(1), Store(s, {Int(0)}, Float(1, DType::kFloat32))),
                         Store(c, {V(block)}, Load(s, {Int(0)}))});
  EXPECT_THAT(Report(OneKernel({}, c, block, MakeVar("t", 1), body, {{s, 0}})),
              HasSubstr("block 1, thread 0: read of shared S[0]: it was never written"));
}

TEST(Interpret, OverlappingBlocksAndReadsAcrossThreads) {
  const auto c = F32("C", Scope::kGlobal, {2}), w = F32("W", Scope::kGlobal, {2});
  const Var block = MakeVar("b", 2), thread = MakeVar("t", 2);
  const Stmt twice = Store(c, {V(thread)}, Float(1, DType::kFloat32));
  EXPECT_THAT(Report(OneKernel({}, c, block, thread, twice)), HasSubstr("has written already"));
  const Var one = MakeVar("b", 1);
  Program p = OneKernel({w}, c, one, thread,
                        Seq({Store(w, {V(thread)}, Float(1, DType::kFloat32)), Barrier(),
                             Store(c, {V(thread)}, Load(w, {Int(1) - V(thread)}))}));
  p.inputs.clear();
  p.workspaces = {w};
  p.kernels[0].written[0] = true;
  EXPECT_THAT(Report(p), HasSubstr("wrote in the same kernel"));
  p.kernels[0].written[0] = false;
  EXPECT_THAT(Report(p), HasSubstr("W is stored to but not marked as written"));
}

TEST(Interpret, BrokenVectorPromises) {
  const auto a = F32("A", Scope::kGlobal, {9, 2}), c = F32("C", Scope::kGlobal, {8});
  const Var v = MakeVar("v", 4), block = MakeVar("b", 1), thread = MakeVar("t", 2);
  const Expr at = V(thread) * Int(4) + V(v);
  const auto read = [&](Expr row, Expr column) {
    return OneKernel({a}, c, block, thread,
                     For(v, ForKind::kVector, Store(c, {at}, Load(a, {row, column}, 4), 4)));
  };
  EXPECT_EQ(Report(read(at / Int(2), at % Int(2))), "");
  EXPECT_THAT(Report(read(at, Int(0))), HasSubstr(", 0] with 4 lanes is not contiguous"));
  EXPECT_THAT(Report(read((at + Int(2)) / Int(2), at % Int(2))), HasSubstr("is not aligned"));
  const Expr some =
      Select(at < Int(6), Load(a, {at / Int(2), at % Int(2)}, 4), Float(0, DType::kFloat32));
  EXPECT_THAT(
      Report(OneKernel({a}, c, block, thread, For(v, ForKind::kVector, Store(c, {at}, some, 4)))),
      HasSubstr("is not made for all lanes"));
}

// All loads come before the stores: a rotation in place.
TEST(Interpret, VectorLoopsLoadBeforeTheyStore) {
  const auto c = F32("C", Scope::kGlobal, {4}), r = F32("R", Scope::kLocal, {4});
  const Var i = MakeVar("i", 4), v = MakeVar("v", 4), w = MakeVar("w", 4);
  const Stmt body =
      Alloc(r, Seq({For(i, ForKind::kUnrolled, Store(r, {V(i)}, Cast(DType::kFloat32, V(i)))),
                    For(v, ForKind::kVector, Store(r, {V(v)}, Load(r, {(V(v) + Int(3)) % Int(4)}))),
                    For(w, ForKind::kVector, Store(c, {V(w)}, Load(r, {V(w)}, 4), 4))}));
  const Program p = OneKernel({}, c, MakeVar("b", 1), MakeVar("t", 1), body);
  TensorValues values;
  const absl::Status status = Interpret(p, values);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(values["C"], (std::vector<double>{3, 0, 1, 2}));
}

TEST(Interpret, SwizzledBuffer) {
  Buffer swizzled = *F32("S", Scope::kShared, {4, 8});
  swizzled.swizzle = 2;
  swizzled.swizzle_row = 8;
  const auto s = std::make_shared<const Buffer>(swizzled);
  const auto a = F32("A", Scope::kGlobal, {4, 8}), c = F32("C", Scope::kGlobal, {8, 4});
  const Var thread = MakeVar("t", 32), v = MakeVar("v", 2);
  const Expr t = V(thread), pair = (t % Int(4)) * Int(2) + V(v);
  const Stmt body =
      Seq({If(t < Int(16), For(v, ForKind::kVector,
                               Store(s, {t / Int(4), pair}, Load(a, {t / Int(4), pair}, 2), 2))),
           Barrier(), Store(c, {t / Int(4), t % Int(4)}, Load(s, {t % Int(4), t / Int(4)}))});
  const Program p = OneKernel({a}, c, MakeVar("b", 1), thread, body, {{s, 0}});
  TensorValues values = InputsFor(p);
  const absl::Status status = Interpret(p, values);
  ASSERT_TRUE(status.ok()) << status;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 8; ++j) EXPECT_EQ(values["C"][j * 4 + i], values["A"][i * 8 + j]);
  }
}

TEST(Interpret, DivergentBarrier) {
  const auto c = F32("C", Scope::kGlobal, {1});
  const Var thread = MakeVar("t", 2);
  EXPECT_THAT(Report(OneKernel({}, c, MakeVar("b", 1), thread, If(V(thread) < Int(1), Barrier()))),
              HasSubstr("a barrier in divergent control flow"));
}

TEST(Interpret, RoundsToFloat32AndPropagatesNan) {
  const auto a = F32("A", Scope::kGlobal, {2}), c = F32("C", Scope::kGlobal, {3});
  const Expr x = Load(a, {Int(0)}), nan = Load(a, {Int(1)}), one = Float(1, DType::kFloat32);
  const Program p = OneKernel(
      {a}, c, MakeVar("b", 1), MakeVar("t", 1),
      Seq({Store(c, {Int(0)}, (x + one) - x), Store(c, {Int(1)}, MakeExpr(Op::kMax, {one, nan})),
           Store(c, {Int(2)}, MakeExpr(Op::kMin, {nan, one}))}));
  TensorValues values{{"A", {16777216.0, std::numeric_limits<double>::quiet_NaN()}}};
  const absl::Status status = Interpret(p, values);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(values["C"][0], 0);  // 2^24 + 1 is no float
  EXPECT_TRUE(std::isnan(values["C"][1]));
  EXPECT_TRUE(std::isnan(values["C"][2]));
}

TEST(Interpret, RefusesWrongInputsAndUnknownNames) {
  const Program p = VectorAdd(8);
  TensorValues values{{"A", std::vector<double>(8)}, {"B", std::vector<double>(7)}};
  EXPECT_THAT(Interpret(p, values).message(), HasSubstr("input B needs 8 values and was given 7"));
  Program q = VectorAdd(8);
  q.kernels[0].body = Store(q.outputs[0], {V(MakeVar("stray", 8))}, Float(0, DType::kFloat32));
  EXPECT_THAT(Report(q), HasSubstr("variable stray is used outside its loop"));
}

}  // namespace
}  // namespace heddle::tests
