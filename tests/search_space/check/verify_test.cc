#include "search_space/check/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/search_space/mutate.h"
#include "tests/search_space/sample_programs.h"

namespace heddle::tests::verify_test {
namespace {

using ::testing::HasSubstr;

Target TestTarget() {
  Target t;
  t.has_async_copy = true;
  return t;
}

std::string Report(const Program& p, const Target& target = TestTarget()) {
  return std::string(Verify(p, target).message());
}

Program WithBody(Program p, const std::function<Stmt(const Stmt&)>& stmt,
                 const std::function<Expr(const Expr&)>& expr = nullptr) {
  p.kernels[0].body = RewriteStmt(p.kernels[0].body, stmt, expr);
  return p;
}

Program Reading(const BufferRef& a, const BufferRef& c, const Var& thread, const Stmt& body) {
  return OneKernel({a}, c, MakeVar("b", 1), thread, body);
}

TEST(Verify, AcceptsTheSamples) {
  for (const Program& p : {VectorAdd(37), VectorAdd(36, true), Matmul(Staging::kPlain),
                           Matmul(Staging::kDoubleBuffered), Matmul(Staging::kAsync)}) {
    EXPECT_EQ(Report(p), "") << ToString(p);
  }
}

TEST(Verify, RemovedGuards) {
  EXPECT_THAT(Report(*Remove(VectorAdd(37), Removal::kIf, 0)),
              HasSubstr("kernel k0_C: global A[(block * 8 + t) * 1]: index 0 is not proven to lie "
                        "in 0..36 (without conditions it spans 0..39)"));
  EXPECT_THAT(Report(*Remove(Matmul(Staging::kDoubleBuffered), Removal::kIf, 0)),
              HasSubstr("index 1 is not proven to lie in 0..7"));
}

TEST(Verify, SelectNarrowsBothSides) {
  const auto a = F32("A", Scope::kGlobal, {4}), c = F32("C", Scope::kGlobal, {8});
  const Var thread = MakeVar("t", 8);
  const Expr t = V(thread), zero = Float(0, DType::kFloat32);
  const auto store = [&](const Expr& value) { return Reading(a, c, thread, Store(c, {t}, value)); };
  EXPECT_EQ(Report(store(Select(t < Int(4), Load(a, {t}), Load(a, {t - Int(4)})))), "");
  EXPECT_EQ(Report(store(Select(Int(2) <= t && t < Int(6), Load(a, {t - Int(2)}), zero))), "");
  EXPECT_THAT(Report(store(Select(t < Int(5), Load(a, {t}), zero))),
              HasSubstr("index 0 is not proven"));
  const Program p = store(Select(t < Int(4), Load(a, {t}), zero));
  EXPECT_THAT(Report(*Remove(p, Removal::kSelect, 0)), HasSubstr("index 0 is not proven"));
}

TEST(Verify, VectorPromises) {
  const auto a = F32("A", Scope::kGlobal, {9, 2}), c = F32("C", Scope::kGlobal, {8});
  const Var v = MakeVar("v", 4), thread = MakeVar("t", 2);
  const Expr at = V(thread) * Int(4) + V(v), zero = Float(0, DType::kFloat32);
  const auto store = [&](const Expr& value) {
    return Reading(a, c, thread, For(v, ForKind::kVector, Store(c, {at}, value, 4)));
  };
  EXPECT_EQ(Report(store(Load(a, {at / Int(2), at % Int(2)}, 4))), "");
  EXPECT_THAT(Report(store(Load(a, {at, Int(0)}, 4))), HasSubstr("is not proven contiguous"));
  EXPECT_THAT(Report(store(Load(a, {(at + Int(2)) / Int(2), at % Int(2)}, 4))),
              HasSubstr("is not proven aligned"));
  EXPECT_THAT(Report(store(Load(a, {at / Int(2), at % Int(2)}, 8))),
              HasSubstr("is no access of 2, 4, 8 or 16 bytes that divides the loop of 4"));
  EXPECT_THAT(Report(store(Select(at < Int(6), Load(a, {at / Int(2), at % Int(2)}, 4), zero))),
              HasSubstr("which differs between them"));
}

TEST(Verify, VectorLoopForm) {
  const auto c = F32("C", Scope::kGlobal, {4});
  const Var v = MakeVar("v", 4), thread = MakeVar("t", 1);
  const Stmt one = Store(c, {V(v)}, Float(1, DType::kFloat32));
  const auto loop = [&](const Stmt& body) {
    return OneKernel({}, c, MakeVar("b", 1), thread, For(v, ForKind::kVector, body));
  };
  EXPECT_EQ(Report(loop(one)), "");
  EXPECT_THAT(Report(loop(Seq({one, one}))), HasSubstr("vector loop v holds no single store"));
  EXPECT_THAT(Report(loop(If(V(v) < Int(3), one))),
              HasSubstr("in the vector loop v depends on it"));
}

TEST(Verify, RegistersNeedUnrolledLoops) {
  const Program p = WithBody(Matmul(Staging::kPlain), [](const Stmt& s) -> Stmt {
    const bool unrolled = s->kind == StmtNode::Kind::kFor && s->for_kind == ForKind::kUnrolled;
    return unrolled ? For(s->var, ForKind::kSerial, s->body[0]) : nullptr;
  });
  EXPECT_THAT(Report(p), HasSubstr("is not the variable of an unrolled loop"));
}

TEST(Verify, BarrierInDivergentControlFlow) {
  const auto guarded = [](const std::function<Expr(const Kernel&)>& condition) {
    Program p = Matmul(Staging::kPlain);
    const Expr c = condition(p.kernels[0]);
    return WithBody(p, [&](const Stmt& s) -> Stmt {
      const bool barrier = s->kind == StmtNode::Kind::kIntrin;
      return barrier ? If(c, s) : nullptr;
    });
  };
  EXPECT_THAT(Report(guarded([](const Kernel& k) { return V(k.thread) < Int(8); })),
              HasSubstr("barrier in control flow that differs between threads"));
  EXPECT_EQ(Report(guarded([](const Kernel& k) { return V(k.block) < Int(1); })), "");
}

TEST(Verify, WrittenFlagsAndOrderOfKernels) {
  Program p = VectorAdd(8);
  p.kernels[0].written = {false, false, false};
  EXPECT_THAT(Report(p), HasSubstr("C is stored to but not marked as written"));
  p.kernels[0].written = {true, false, true};
  EXPECT_THAT(Report(p), HasSubstr("A is marked as written but never stored to"));
  p = VectorAdd(8);
  p.workspaces = {p.inputs[0]};
  p.inputs.erase(p.inputs.begin());
  EXPECT_THAT(Report(p), HasSubstr("A is read before any kernel has written it"));
  p = VectorAdd(8);
  p.inputs.push_back(p.outputs[0]);
  EXPECT_THAT(Report(p), HasSubstr("input C is stored to"));
  p = VectorAdd(8);
  p.outputs.push_back(F32("D", Scope::kGlobal, {8}));
  EXPECT_THAT(Report(p), HasSubstr("no kernel writes the output D"));
  p = VectorAdd(8);
  p.kernels.push_back(p.kernels[0]);
  EXPECT_THAT(Report(p), HasSubstr("two kernels are named k0_C"));
}

TEST(Verify, LaunchLimitsAreResourceExhausted) {
  const Program p = Matmul(Staging::kPlain);
  Target t = TestTarget();
  t.max_threads_per_block = 7;
  EXPECT_TRUE(absl::IsResourceExhausted(Verify(p, t)));
  EXPECT_THAT(Report(p, t), HasSubstr("8 threads a block; the device allows 7"));
  t = TestTarget();
  t.max_shared_bytes_per_block = 127;
  EXPECT_THAT(Report(p, t), HasSubstr("128 bytes of shared memory; the device allows 127"));
  t = TestTarget();
  t.max_grid = 4;
  EXPECT_THAT(Report(VectorAdd(37), t), HasSubstr("5 blocks; the device allows 4"));
}

TEST(Verify, Arena) {
  Program p = Matmul(Staging::kPlain);
  p.kernels[0].shared[1].offset = 68;
  EXPECT_THAT(Report(p), HasSubstr("begins at byte 68, which is no multiple of 16"));
  p = Matmul(Staging::kPlain);
  p.kernels[0].shared_bytes = 112;
  EXPECT_THAT(Report(p), HasSubstr("end at byte 128 of an arena of 112"));
  p.kernels[0].shared_bytes = 256;
  EXPECT_THAT(Report(p), HasSubstr("end at byte 128 of an arena of 256"));
}

TEST(Verify, AsyncCopies) {
  Target t = TestTarget();
  t.has_async_copy = false;
  EXPECT_THAT(Report(Matmul(Staging::kAsync), t), HasSubstr("no asynchronous copies"));
  const Program p = WithBody(Matmul(Staging::kAsync), [](const Stmt& s) -> Stmt {
    if (s->kind != StmtNode::Kind::kIntrin || s->buffer == nullptr) return nullptr;
    return AsyncCopy(s->buffer, s->indices, s->value + s->value, s->lanes);
  });
  EXPECT_THAT(Report(p), HasSubstr("neither a global load of as many lanes nor one selected"));
}

TEST(Verify, AtomicUpdates) {
  EXPECT_EQ(Report(Histogram()), "");
  const auto with = [](const BufferRef& buffer, Combiner combiner) {
    return WithBody(Histogram(), [&](const Stmt& s) -> Stmt {
      if (s->kind != StmtNode::Kind::kIntrin || s->buffer == nullptr) return nullptr;
      return AtomicCombine(combiner, buffer != nullptr ? buffer : s->buffer, s->indices, s->value);
    });
  };
  EXPECT_EQ(Report(with(nullptr, Combiner::kMax)), "");
  EXPECT_THAT(Report(with(nullptr, Combiner::kNone)), HasSubstr("an atomic update of 1 elements"));
  const Program updates = Updates();
  EXPECT_EQ(Report(updates), "");
  EXPECT_EQ(Report(Updates(4), *FindTarget("h100")), "");
  EXPECT_THAT(Report(Updates(4), *FindTarget("a100")), HasSubstr("adds to no 4 elements"));
  Program of_registers = updates;
  const BufferRef r = F32("r", Scope::kLocal, {4});
  of_registers.kernels[1].body =
      Alloc(r, AtomicCombine(Combiner::kSum, r, {Int(0)}, Float(1, DType::kFloat32)));
  EXPECT_THAT(Report(of_registers), HasSubstr("an atomic update of 1 elements of r"));
}

TEST(Verify, OverflowingIntegers) {
  const auto a = F32("A", Scope::kGlobal, {4}), c = F32("C", Scope::kGlobal, {8});
  const Var thread = MakeVar("t", 8);
  const auto read = [&](int64_t factor) {
    return Report(
        Reading(a, c, thread, Store(c, {V(thread)}, Load(a, {V(thread) * Int(factor) % Int(4)}))));
  };
  EXPECT_EQ(read(int64_t{1} << 58), "");
  EXPECT_THAT(read(int64_t{1} << 61), HasSubstr("may overflow 64 bits"));
}

TEST(Verify, UndeclaredBuffersAndStrayVariables) {
  const auto c = F32("C", Scope::kGlobal, {8}), s = F32("S", Scope::kShared, {8});
  const Var thread = MakeVar("t", 8), stray = MakeVar("stray", 8);
  const auto program = [&](const Expr& value) {
    return OneKernel({}, c, MakeVar("b", 1), thread, Store(c, {V(thread)}, value));
  };
  EXPECT_THAT(Report(program(Load(s, {V(thread)}))), HasSubstr("shared S[t] is not declared here"));
  EXPECT_THAT(Report(program(Cast(DType::kFloat32, V(stray)))),
              HasSubstr("variable stray is used outside its loop"));
}

}  // namespace
}  // namespace heddle::tests::verify_test
