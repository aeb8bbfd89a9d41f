// Every mistake that rings of asynchronous copies in front of mma.sync can have, and results that
// go through shared memory, is seen. Those of rings in front of wgmma are in warpgroup_test.cc.
#include "tests/search_space/check/mistakes.h"

#include <gtest/gtest.h>

#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

using tests::Removal;

// Three buffers and four tiles, so that the ring goes round, for four warps.
PointOfProduct Copied(const char* prefetch, const char* shape = "m=32,n=16,k=128") {
  return PointOfProduct(
      "matmul", shape, "sm_80",
      absl::StrCat(
          "matrix: swap=0 m.warps=2 n.warps=2 m.tiles=1 n.tiles=1 k.steps=2 split_k=1 pipeline=3 "
          "prefetch=",
          prefetch, " block_swizzle=1 min_blocks=0 staged=0"));
}

void NextSlot(Expr& slot) { slot = Simplify((slot + Int(1)) % Int(3)); }

// Of a product of loads, the first index of either.
Expr WithFirstIndex(const Expr& product, const std::function<Expr(const Expr&)>& change) {
  return Rewrite(product, [&](const Expr& e) -> Expr {
    if (e->op != Op::kLoad) return nullptr;
    ExprList indices = e->args;
    indices[0] = change(indices[0]);
    return Load(e->buffer, indices);
  });
}

void ExpectWrongSlotsAreSeen(const PointOfProduct& point) {
  ExpectSeen(point, Intrinsic::kAsyncWait, "asynchronous copy", [](StmtNode& s) { ++s.int_value; });
  ExpectSeen(point, Intrinsic::kAsyncCopy, "", [](StmtNode& s) { NextSlot(s.indices[0]); });
  for (Intrinsic load : {Intrinsic::kLoadMatrix, Intrinsic::kLoadMatrixTransposed}) {
    ExpectSeen(point, load, "", [](StmtNode& s) {
      s.value = WithFirstIndex(s.value,
                               [](const Expr& slot) { return Simplify((slot + Int(1)) % Int(3)); });
    });
    ExpectSeen(point, load, "wrong results", [](StmtNode& s) {
      s.intrinsic = s.intrinsic == Intrinsic::kLoadMatrix ? Intrinsic::kLoadMatrixTransposed
                                                          : Intrinsic::kLoadMatrix;
    });
  }
}

TEST(AsyncPipelines, MistakesAreSeen) {
  const PointOfProduct point = Copied("0");
  point.ExpectRight();
  for (const Mistake& m : {
           Mistake{Removal::kAsyncWait, 1, 0, "asynchronous copy"},
           Mistake{Removal::kAsyncCommit, 3, 0, "asynchronous copy"},
           // Behind the loop nobody writes what others may still read.
           Mistake{Removal::kBarrier, 2, 1, ""},
           // There are more tiles; a thread has something to copy.
           Mistake{Removal::kIf, 4, 0, ""},
       }) {
    ExpectSeen(point, m);
  }
  ExpectWrongSlotsAreSeen(point);
}

// The next step's fragments are read while this one's are multiplied: those of the next tile's
// first step behind that tile's wait and barrier.
TEST(AsyncPipelines, MistakesOfFragmentsReadAheadAreSeen) {
  const PointOfProduct point = Copied("1");
  point.ExpectRight();
  for (const Mistake& m : {
           Mistake{Removal::kAsyncWait, 2, 0, "asynchronous copy"},
           Mistake{Removal::kAsyncCommit, 3, 0, "asynchronous copy"},
           Mistake{Removal::kBarrier, 3, 1, ""},
           Mistake{Removal::kIf, 5, 1, ""},  // what is read behind the last tile is not multiplied
       }) {
    ExpectSeen(point, m);
  }
  ExpectWrongSlotsAreSeen(point);
  ExpectSeen(point, Intrinsic::kMatrixMultiply, "", [](StmtNode& s) {
    s.value = WithFirstIndex(s.value, [](const Expr& of) { return Simplify(Int(1) - of); });
  });
}

// Copies of what lies outside write zeros, and nothing is stored there.
TEST(AsyncPipelines, MistakesAtEdgesAreSeen) {
  const PointOfProduct point = Copied("0", "m=24,n=40,k=88");
  point.ExpectRight();
  for (const Mistake& m : {
           Mistake{Removal::kSelect, 6, 0, ""},
           Mistake{Removal::kIf, 6, 1, ""},  // behind the last tile there are zeros
       }) {
    ExpectSeen(point, m);
  }
}

// A block's result lies where the tiles were: what reads those must have ended in all threads. Two
// barriers in a row say so, of which either would do.
void ExpectBarriersAreSeen(const PointOfProduct& point, int count, int first_of_two) {
  ExpectSeen(point, {Removal::kBarrier, count, 2, ""});
  const auto damaged = tests::Remove(point.lowered, Removal::kBarrier, first_of_two);
  const auto both = tests::Remove(*damaged, Removal::kBarrier, first_of_two);
  EXPECT_TRUE(point.IsSeen(*both, "")) << ToString(*both);
}

TEST(StagedResults, MistakesOfPipelinesAreSeen) {
  const PointOfProduct point(
      "matmul", "m=128,n=64,k=32", "sm_80",
      "matrix: swap=0 m.warps=2 n.warps=4 m.tiles=4 n.tiles=2 k.steps=1 split_k=1 pipeline=2 "
      "prefetch=0 block_swizzle=1 min_blocks=0 staged=1");
  point.ExpectRight();
  // All copies have been waited for when the last tile was.
  ExpectSeen(point, {Removal::kAsyncWait, 2, 1, "asynchronous copy"});
  ExpectBarriersAreSeen(point, 4, 1);
}

PointOfProduct StagedRing(const char* bulk) {
  return PointOfProduct(
      "matmul", "m=128,n=64,k=64", "h100",
      absl::StrCat(
          "warpgroup: swap=0 m.groups=2 n.groups=1 m.tiles=1 columns=64 k.steps=1 split_k=1 "
          "pipeline=3 in_flight=1 block_swizzle=1 min_blocks=0 bulk=",
          bulk, " staged=1"));
}

TEST(StagedResults, MistakesOfRingsAreSeen) {
  const PointOfProduct ring = StagedRing("0");
  ring.ExpectRight();
  for (const Mistake& m : {
           Mistake{Removal::kAsyncWait, 3, 1, "asynchronous copy"},
           // The one behind the loop keeps the compiler from moving what stands there.
           Mistake{Removal::kOperandFence, 2, 1, "written since the last fence"},
           Mistake{Removal::kProductWait, 2, 0, "product"},
           // No product reads the result.
           Mistake{Removal::kProxyFence, 4, 2, "not fenced"},
       }) {
    ExpectSeen(ring, m);
  }
  ExpectBarriersAreSeen(ring, 5, 2);
}

TEST(StagedResults, MistakesOfBulkRingsAreSeen) {
  const PointOfProduct ring = StagedRing("1");
  ring.ExpectRight();
  ExpectMistakesOfBulkCopiesAreSeen(ring);
  ExpectSeen(ring, {Removal::kOperandFence, 2, 1, "written since the last fence"});
  ExpectSeen(ring, {Removal::kProductWait, 2, 0, "product"});
  ExpectSeen(ring, {Removal::kBarrier, 5, 1, ""});  // behind the loop no more tiles are fetched
}

}  // namespace
}  // namespace heddle::search_space
