// Products of warpgroups: where their operands lie and who holds their results, what a kernel is
// made of, and that every mistake in waiting and fencing is seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_space/check/verify.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/lower.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "tests/search_space/check/mistakes.h"

namespace heddle::search_space {
namespace {

using testing::HasSubstr;
using tests::Removal;

// The formulas of "Register Fragments for wgmma.mma_async.m64nNk16", PTX ISA, figure of D.
TEST(WarpgroupLayouts, AreThoseOfThePtxFigure) {
  const MatrixShape& shape = ShapeOf(MatrixInstruction::kM64N32K16);
  const FragmentLayout& layout = shape.Layout(MatrixOperand::kD);
  EXPECT_EQ(layout.elements(), 16);
  EXPECT_EQ(layout.lanes(), 128);
  for (int64_t t = 0; t < 128; ++t) {
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2);
      const int64_t col = 8 * (i / 4) + t % 4 * 2 + i % 2;
      EXPECT_EQ(Simplify(layout.Lane(Int(row), Int(col)))->int_value, t) << row << ", " << col;
      EXPECT_EQ(Simplify(layout.Element(Int(row), Int(col)))->int_value, i) << row << ", " << col;
    }
  }
}

TEST(WarpgroupLayouts, AreOfDevicesThatHaveThem) {
  const MatrixShape& shape = ShapeOf(MatrixInstruction::kM64N256K16);
  EXPECT_TRUE(shape.IsOn(*FindTarget("h100")));
  EXPECT_FALSE(shape.IsOn(*FindTarget("sm_80")));
  EXPECT_FALSE(shape.IsOn(*FindTarget("sm_100"))) << "an architecture's own: no later one's";
}

// A ring of three buffers, products of one tile in flight beside those of the next, in two
// warpgroups.
std::string RingPoint(const char* in_flight, const char* bulk) {
  return absl::StrCat(
      "warpgroup: swap=0 m.groups=2 n.groups=1 m.tiles=1 columns=16 k.steps=2 split_k=1 "
      "pipeline=3 in_flight=",
      in_flight, " block_swizzle=1 min_blocks=0 bulk=", bulk);
}

PointOfProduct Ring(const char* in_flight = "1", const char* bulk = "0") {
  return PointOfProduct("matmul", "m=128,n=16,k=128", "h100", RingPoint(in_flight, bulk));
}

TEST(WarpgroupProducts, AreComputed) {
  for (const char* in_flight : {"0", "1"}) {
    for (const char* bulk : {"0", "1"}) {
      Ring(in_flight, bulk).ExpectRight();
    }
  }
}

// The ring's steps without tiles in flight, and others behind them.
absl::StatusOr<Program> WithSteps(const PointOfProduct& ring, const std::string& more) {
  const auto space = SearchSpace::Create(ring.program, ring.target);
  const auto point = space->Parse(RingPoint("0", "0"));
  Schedule schedule(ring.program);
  const absl::Status applied = Apply(*space->Steps(*point), schedule);
  EXPECT_TRUE(applied.ok()) << applied;
  const absl::Status behind = Apply(*ParseSteps(more), schedule);
  if (!behind.ok()) return behind;
  return Lower(schedule);
}

// Operand a in registers, read for a whole tile, for each step of it, or for each matrix, between
// whose products the threads then read.
TEST(WarpgroupProducts, MayHoldAnOperand) {
  PointOfProduct ring = Ring("0");
  for (const char* loop : {"r.0", "r.1", "i.0"}) {
    SCOPED_TRACE(loop);
    const auto lowered = WithSteps(ring, absl::StrCat(R"(gather_read(C.acc, 0)
set_scope(C.acc.operand0.2, local)
fragment(C.acc.operand0.2, wgmma_m64n16k16, a, i, r)
compute_at(C.acc.operand0.2, C.acc, )",
                                                      loop, ")"));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    ring.lowered = *lowered;
    ring.ExpectRight();
  }
  const auto refused = WithSteps(ring, R"(gather_read(C.acc, 1)
set_scope(C.acc.operand1.2, local)
fragment(C.acc.operand1.2, wgmma_m64n16k16, b, j, r))");
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("reads operand b from shared memory"));
}

// Removing any of the waits, fences and barriers that keep products and threads apart is seen, with
// every seed; the fences in front of barriers behind which no product reads anything are not
// needed.
TEST(WarpgroupProducts, MistakesAreSeen) {
  const PointOfProduct ring = Ring();
  for (const Mistake& m : {
           Mistake{Removal::kAsyncWait, 2, 0, "asynchronous copy"},
           // The one behind the loop keeps the compiler from moving what stands there.
           Mistake{Removal::kOperandFence, 2, 1, "written since the last fence"},
           Mistake{Removal::kProductWait, 2, 0, "product"},
           Mistake{Removal::kProxyFence, 3, 1, "not fenced"},
           Mistake{Removal::kBarrier, 3, 1, "thread"},
       }) {
    ExpectSeen(ring, m);
  }
}

Program WithProducts(const Program& program, const std::function<void(StmtNode&)>& change) {
  return WithIntrinsics(program, Intrinsic::kWarpgroupMultiply, change);
}

// The same of bulk copies.
TEST(BulkCopies, MistakesAreSeen) {
  const PointOfProduct ring = Ring("1", "1");
  ExpectMistakesOfBulkCopiesAreSeen(ring);
  ExpectSeen(ring, {Removal::kBarrier, 3, 1, ""});
  ExpectSeen(ring, Intrinsic::kPhaseExpect, "would never end",
             [](StmtNode& s) { s.int_value += 16; });
  ExpectSeen(ring, Intrinsic::kPhaseExpect, "", [](StmtNode& s) { s.int_value -= 16; });
  // Too few bytes, but those of one of the two copies.
  ExpectSeen(ring, Intrinsic::kPhaseExpect, "not waited for",
             [](StmtNode& s) { s.int_value = 128 * 32 * 2; });
  ExpectSeen(ring, Intrinsic::kPhaseWait, "",
             [](StmtNode& s) { s.value = Simplify(Int(1) - s.value); });
  ExpectSeen(ring, Intrinsic::kPhaseWait, "", [](StmtNode& s) { s.value = Int(0); });
  ExpectSeen(ring, Intrinsic::kPhaseWait, "",
             [](StmtNode& s) { s.indices = {Simplify((s.indices[0] + Int(1)) % Int(3))}; });
  ExpectSeen(ring, Intrinsic::kBulkCopy, "",
             [](StmtNode& s) { s.indices[0] = Simplify((s.indices[0] + Int(1)) % Int(3)); });
  ExpectSeen(ring, Intrinsic::kBulkCopy, "", [](StmtNode& s) { s.box[0] /= 2; });
}

// Three tiles of the result, or two and a half, for two blocks that stay; rings that are filled
// once a tile, twice, and once or twice.
constexpr char kStaying[] =
    "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=16 k.steps=1 split_k=1 ";

TEST(PersistentBlocks, ComputeOneTileAfterAnother) {
  for (const char* shape : {"m=192,n=16,k=64", "m=160,n=16,k=96", "m=192,n=16,k=48"}) {
    for (const char* ring : {"pipeline=2 in_flight=0", "pipeline=3 in_flight=1"}) {
      for (const char* staged : {"0", "1"}) {
        SCOPED_TRACE(absl::StrCat(shape, " ", ring, " ", staged));
        PointOfProduct("matmul", shape, "h100",
                       absl::StrCat(kStaying, ring, " block_swizzle=1 min_blocks=0 bulk=1 staged=",
                                    staged, " persist=1"),
                       2)
            .ExpectRight();
      }
    }
  }
}

// A result of 17 KB lies where tiles will be that are not fetched while it is stored.
TEST(PersistentBlocks, StoreAResultOverTiles) {
  const PointOfProduct staying(
      "matmul", "m=320,n=128,k=112", "h100",
      "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=128 k.steps=1 split_k=1 "
      "pipeline=6 in_flight=1 block_swizzle=1 min_blocks=0 bulk=1 staged=1 persist=1",
      2);
  staying.ExpectRight();
  const Kernel& kernel = staying.lowered.kernels[0];
  ASSERT_EQ(kernel.shared.size(), 4u);
  const Kernel::SharedBuffer &tiles = kernel.shared[2], &result = kernel.shared[3];
  EXPECT_EQ(result.offset, tiles.offset + 4 * 4096) << "behind the four that are";
  EXPECT_GT(result.offset + result.buffer->bytes(), tiles.offset + 6 * 4096);
  for (const Mistake& m : {
           Mistake{Removal::kProxyFence, 2, 0, "not fenced"},
           // Needless are the one in front of a tile, as threads meet for its first products, too,
           // before others are copied there, and that for its last products, behind which none is.
           Mistake{Removal::kBarrier, 6, 2, ""},
       }) {
    ExpectSeen(staying, m);
  }
}

TEST(PersistentBlocks, WantAPipelineOfBulkCopies) {
  const PointOfProduct ring("matmul", "m=256,n=16,k=128", "h100", RingPoint("0", "0"));
  EXPECT_THAT(std::string(WithSteps(ring, "persist(C, 1)").status().message()),
              HasSubstr("where one pipeline, of bulk copies, fetches tiles"));
  Schedule bare(ring.program);
  ASSERT_TRUE(Apply(*ParseSteps("bind(C, i, block)\npersist(C, 7)\nset_scope(C.acc, local)\n"
                                "compute_at(C.acc, C, j)"),
                    bare)
                  .ok());
  EXPECT_THAT(std::string(Lower(bare).status().message()),
              HasSubstr("blocks of i stay (persist) where a pipeline of bulk copies goes on"));
  EXPECT_THAT(std::string(Apply(*ParseSteps("persist(C, 256)"), bare).message()),
              HasSubstr("blocks may stay for 1 to 255"));
  Schedule unbound(ring.program);
  EXPECT_THAT(std::string(Apply(*ParseSteps("persist(C, 7)"), unbound).message()),
              HasSubstr("bind a loop of C to block first"));
}

TEST(PersistentBlocks, MistakesAreSeen) {
  const PointOfProduct staying(
      "matmul", "m=320,n=16,k=48", "h100",
      absl::StrCat(kStaying,
                   "pipeline=2 in_flight=0 block_swizzle=1 min_blocks=0 bulk=1 staged=1 persist=1"),
      2);
  staying.ExpectRight();
  for (const Mistake& m : {
           Mistake{Removal::kPhaseInit, 1, 0, "not made"},
           Mistake{Removal::kPhaseExpect, 3, 0, "would never end"},
           Mistake{Removal::kPhaseWait, 1, 0, "bulk copy to it is not waited for"},
           Mistake{Removal::kBulkCopy, 6, 0, ""},
           // That in front of a tile is for what threads put beside it, here nothing.
           Mistake{Removal::kBarrier, 5, 1, ""},
           Mistake{Removal::kIf, 6, 0, ""},
       }) {
    ExpectSeen(staying, m);
  }
  // As in a block that computes one tile.
  ExpectSeen(staying, Intrinsic::kPhaseWait, "", [&](StmtNode& s) {
    s.value = Substitute(s.value, [&](const Var& v) { return v->extent == 5 ? Int(0) : nullptr; });
  });
  const Program other = staying.lowered;
  for (const int64_t stride : {1, 3}) {
    Program wrong = other;
    wrong.kernels[0].body = RewriteStmt(
        other.kernels[0].body,
        [&](const Stmt& s) -> Stmt {
          if (s->kind != StmtNode::Kind::kFor || s->value == nullptr) return nullptr;
          auto changed = std::make_shared<StmtNode>(*s);
          changed->int_value = stride;
          return changed;
        },
        nullptr);
    EXPECT_THAT(std::string(Verify(wrong, staying.target).message()),
                HasSubstr("goes on by as many as there are blocks"));
  }
}

TEST(BulkCopies, AreRefusedWhereTheyWouldGoWrong) {
  const PointOfProduct ring = Ring("1", "1");
  const auto why = [&](const std::function<void(StmtNode&)>& change) {
    const Program changed = WithIntrinsics(ring.lowered, Intrinsic::kBulkCopy, change);
    return std::string(Verify(changed, ring.target).message());
  };
  EXPECT_THAT(std::string(Verify(ring.lowered, *FindTarget("a100")).message()),
              HasSubstr("sm_80 has no bulk copies"));
  EXPECT_THAT(why([](StmtNode& s) { s.box[0] = 512; }), HasSubstr("must be of up to 256"));
  EXPECT_THAT(why([](StmtNode& s) { s.box.back() /= 2; }), HasSubstr("not swizzled as they are"));
  EXPECT_THAT(why([](StmtNode& s) { s.box[0] *= 2; }), HasSubstr("do not end inside the buffer"));
  EXPECT_THAT(why([](StmtNode& s) { s.indices[1] = s.indices[1] + Int(4); }),
              HasSubstr("do not end inside the buffer or begin between squares"));
  EXPECT_THAT(why([](StmtNode& s) { s.base = s.buffer; }), HasSubstr("holds no phases"));
  EXPECT_THAT(why([](StmtNode& s) {
                s.value = Load(MakeBuffer("A", DType::kBFloat16, Scope::kGlobal, {128, 100}),
                               s.value->args);
              }),
              HasSubstr("in rows that begin at 16 bytes"));
}

TEST(WarpgroupProducts, AreRefusedWhereTheyWouldGoWrong) {
  const PointOfProduct ring = Ring();
  const auto why = [&](const Program& program, const Target& target) {
    return std::string(Verify(program, target).message());
  };
  EXPECT_THAT(why(ring.lowered, *FindTarget("a100")), HasSubstr("sm_80 has no instruction"));
  const Program shorter_lines =
      WithProducts(ring.lowered, [](StmtNode& s) { s.operands[0].span = 16; });
  EXPECT_THAT(why(shorter_lines, ring.target), HasSubstr("swizzled"));
  const Program across = WithProducts(
      ring.lowered, [](StmtNode& s) { s.operands[0].transposed = !s.operands[0].transposed; });
  EXPECT_THAT(why(across, ring.target), HasSubstr("not proven to begin a matrix"));
  const Program some = WithProducts(ring.lowered, [](StmtNode& s) {
    s.int_value = static_cast<int64_t>(MatrixInstruction::kM64N256K16);
  });
  EXPECT_THAT(why(some, ring.target), HasSubstr("not proven to begin a matrix"));

  Program elsewhere = ring.lowered;
  elsewhere.kernels[0].body =
      Seq({OperandFence(ring.lowered.kernels[0].shared[0].buffer), ring.lowered.kernels[0].body});
  EXPECT_THAT(why(elsewhere, ring.target), HasSubstr("operand_fence of"));

  Program moved = ring.lowered;
  for (Kernel::SharedBuffer& s : moved.kernels[0].shared) s.offset += 128;
  moved.kernels[0].shared_bytes += 128;
  EXPECT_THAT(why(moved, ring.target), HasSubstr("is no multiple of"));

  Program divergent = ring.lowered;
  Kernel& kernel = divergent.kernels[0];
  kernel.body = If(VarExpr(kernel.thread) < Int(160), kernel.body);
  EXPECT_THAT(why(divergent, ring.target), HasSubstr("control flow that differs"));
}

}  // namespace
}  // namespace heddle::search_space
