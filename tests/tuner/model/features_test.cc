// Features against figures worked out by hand.
#include "tuner/model/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/search_space/sample_programs.h"
#include "tuner/model/analytic/kernel_cost.h"
#include "tuner/model/analytic/occupancy.h"

namespace heddle {
namespace {

using tests::F32;
using tests::OneKernel;
using tests::V;
using namespace search_space;

const Target& H100() {
  static const auto& target = *new Target(*FindTarget("h100"));
  return target;
}

double Feature(const Program& program, const std::string& name) {
  const auto features = tuner::FeaturesOf(program, H100());
  EXPECT_TRUE(features.ok()) << features.status();
  const int index = tuner::FeatureIndex(name);
  EXPECT_GE(index, 0) << name;
  return (*features)[static_cast<size_t>(index)];
}

// C[block, t] = A[index(t)], one block of 64 threads for each of 64 rows.
Program Read(const std::function<Expr(const Expr& block, const Expr& t)>& index) {
  const auto a = F32("A", Scope::kGlobal, {1 << 20}), c = F32("C", Scope::kGlobal, {64, 64});
  const Var block = MakeVar("block", 64), thread = MakeVar("t", 64);
  return OneKernel({a}, c, block, thread,
                   Store(c, {V(block), V(thread)}, Load(a, {index(V(block), V(thread))})));
}

TEST(Features, SectorsOfARequest) {
  const auto sectors = [](const std::function<Expr(const Expr&, const Expr&)>& index) {
    return Feature(Read(index), "load_sectors");
  };
  // 32 threads x 4 bytes are 4 sectors of 32 bytes.
  EXPECT_EQ(sectors([](const Expr& b, const Expr& t) { return b * Int(64) + t; }), 4);
  EXPECT_EQ(sectors([](const Expr& b, const Expr& t) { return b * Int(128) + t * Int(2); }), 8);
  EXPECT_EQ(sectors([](const Expr&, const Expr& t) { return t * Int(1024); }), 32);
  EXPECT_EQ(sectors([](const Expr& b, const Expr&) { return b; }), 1);
  // One element late, the row crosses into a fifth sector.
  EXPECT_EQ(sectors([](const Expr& b, const Expr& t) { return b * Int(64) + t + Int(1); }), 5);
  // 8 rows of 4 elements each.
  EXPECT_EQ(sectors([](const Expr&, const Expr& t) { return t / Int(4) * Int(1024) + t % Int(4); }),
            8);
  const Program strided = Read([](const Expr&, const Expr& t) { return t * Int(1024); });
  EXPECT_FLOAT_EQ(static_cast<float>(Feature(strided, "load_efficiency")), 4.0F / 32);
  EXPECT_EQ(Feature(strided, "store_efficiency"), 1);
}

TEST(Features, WideAccesses) {
  const Program wide = tests::VectorAdd(1 << 16, true);
  EXPECT_EQ(Feature(wide, "load_width"), 16);
  EXPECT_EQ(Feature(wide, "store_width"), 16);
  // 8 threads a block, 16 bytes each: 4 sectors.
  EXPECT_EQ(Feature(wide, "load_sectors"), 4);
  EXPECT_EQ(Feature(wide, "load_efficiency"), 1);
  EXPECT_EQ(Feature(tests::VectorAdd(1 << 16), "load_width"), 4);
}

// A block of 128 threads stores its 4 x `row` elements to shared memory, and each thread loads
// `lanes` of them from where `index` says.
Program ReadShared(int lanes, int64_t row, const std::function<Expr(const Expr& t)>& index,
                   int64_t swizzle = 0) {
  Buffer shared = *F32("S", Scope::kShared, {64, row});
  shared.swizzle = swizzle;
  shared.swizzle_row = row;
  const auto s = std::make_shared<const Buffer>(shared);
  const auto c = F32("C", Scope::kGlobal, {128, 4});
  const Var block = MakeVar("block", 1), thread = MakeVar("t", 128), v = MakeVar("v", lanes);
  const Expr at = index(V(thread)) + (lanes > 1 ? V(v) : Int(0));
  const Stmt load = Store(c, {V(thread), lanes > 1 ? V(v) : Int(0)},
                          Load(s, {at / Int(row), at % Int(row)}, lanes), lanes);
  const Stmt fill = Store(s, {V(thread) / Int(2), V(thread) % Int(2)}, Float(1, DType::kFloat32));
  return OneKernel({}, c, block, thread,
                   Seq({fill, Barrier(), lanes > 1 ? For(v, ForKind::kVector, load) : load}),
                   {{s, 0}});
}

TEST(Features, BankConflicts) {
  const auto conflicts = [](int lanes, int64_t row, const std::function<Expr(const Expr&)>& index,
                            int64_t swizzle = 0) {
    return Feature(ReadShared(lanes, row, index, swizzle), "shared_load_conflicts");
  };
  EXPECT_EQ(conflicts(1, 32, [](const Expr& t) { return t; }), 1);
  EXPECT_EQ(conflicts(1, 32, [](const Expr&) { return Int(7); }), 1);  // one word for all
  EXPECT_EQ(conflicts(1, 32, [](const Expr& t) { return t * Int(2); }), 2);
  const auto column = [](int64_t row) {
    return [row](const Expr& t) { return t % Int(32) * Int(row); };
  };
  EXPECT_EQ(conflicts(1, 32, column(32)), 32);
  EXPECT_EQ(conflicts(1, 33, column(33)), 1);  // the padded tile of a transpose
  EXPECT_EQ(conflicts(1, 36, column(36)), 4);
  // 16 bytes a thread: quarters of a warp, each of which covers all banks once.
  const auto quads = [](const Expr& t) { return t * Int(4); };
  EXPECT_EQ(conflicts(4, 32, quads), 1);
  // Threads of a quarter in 8 rows of 32 elements, all in the same four banks.
  const auto quad_column = [](const Expr& t) { return t % Int(8) * Int(32); };
  EXPECT_EQ(conflicts(4, 32, quad_column), 8);
  // Swizzled by chunks of 4 the rows lie in different banks.
  EXPECT_EQ(conflicts(4, 32, quad_column, 4), 1);
}

TEST(Features, Occupancy) {
  // 64 registers x 32 threads = 2048 a warp; a quarter of 65536 holds 8 of them, so 32 warps, 4
  // blocks of 8 warps.
  tuner::Occupancy o = tuner::OccupancyOf(256, 64, 0, H100());
  EXPECT_EQ(o.by_registers, 4);
  EXPECT_EQ(o.by_threads, 8);
  EXPECT_EQ(o.by_blocks, 32);
  EXPECT_EQ(o.blocks(), 4);
  EXPECT_EQ(o.limiter, tuner::Limiter::kRegisters);
  // 228 KiB / (48 + 1) KiB.
  o = tuner::OccupancyOf(256, 32, 48 << 10, H100());
  EXPECT_EQ(o.by_shared, 4);
  EXPECT_EQ(o.limiter, tuner::Limiter::kShared);
  // 168 registers: 5376 a warp, 3 a quarter, 12 warps.
  EXPECT_EQ(tuner::OccupancyOf(128, 168, 0, H100()).blocks(), 3);
  EXPECT_EQ(tuner::OccupancyOf(1024, 32, 0, H100()).limiter, tuner::Limiter::kThreads);
  EXPECT_EQ(tuner::OccupancyOf(32, 16, 0, H100()).limiter, tuner::Limiter::kBlocks);
  EXPECT_EQ(tuner::OccupancyOf(1024, 128, 0, H100()).blocks(), 0);
}

TEST(Features, WavesAndTail) {
  // 132 multiprocessors, and a shared buffer of 100 KB that lets 2 blocks run on each.
  const auto grid = [](int64_t blocks) {
    const auto c = F32("C", Scope::kGlobal, {blocks, 128}), s = F32("S", Scope::kShared, {25600});
    const Var block = MakeVar("block", blocks), thread = MakeVar("t", 128);
    return OneKernel({}, c, block, thread,
                     Seq({Store(s, {V(thread)}, Float(1, DType::kFloat32)), Barrier(),
                          Store(c, {V(block), V(thread)}, Load(s, {V(thread)}))}),
                     {{s, 0}});
  };
  EXPECT_EQ(Feature(grid(264), "blocks_by_shared"), 2);
  EXPECT_EQ(Feature(grid(264), "limiter"), 3);
  EXPECT_EQ(Feature(grid(264), "waves"), 1);
  EXPECT_EQ(Feature(grid(264), "tail"), 0);
  EXPECT_EQ(Feature(grid(264), "balance"), 1);
  EXPECT_EQ(Feature(grid(265), "waves"), 2);
  EXPECT_NEAR(Feature(grid(265), "tail"), 2 - 265.0 / 264, 1e-6);
  EXPECT_NEAR(Feature(grid(265), "balance"), 265.0 / 396, 1e-6);
  EXPECT_NEAR(Feature(grid(265), "occupancy"), 2 * 4.0 / 64, 1e-6);
  // One block on a third of the multiprocessors.
  EXPECT_NEAR(Feature(grid(44), "balance"), 1.0 / 3, 1e-6);
  EXPECT_EQ(Feature(grid(44), "active_warps"), 4);
}

TEST(Features, ConditionsSwitchLanesOff) {
  // 24 of 32 threads store.
  const auto c = F32("C", Scope::kGlobal, {24});
  const Var block = MakeVar("block", 1), thread = MakeVar("t", 32);
  const Program p =
      OneKernel({}, c, block, thread,
                If(V(thread) < Int(24), Store(c, {V(thread)}, Float(1, DType::kFloat32))));
  EXPECT_EQ(Feature(p, "requested_bytes"), 24 * 4);
  EXPECT_EQ(Feature(p, "global_store"), 1);
  EXPECT_EQ(Feature(p, "store_sectors"), 3);
  EXPECT_EQ(Feature(p, "buffer0_conditional"), 1);
  // Half of the warps have nothing to do and skip.
  const Var many = MakeVar("t", 512);
  const auto wide = F32("C", Scope::kGlobal, {256});
  const Program half =
      OneKernel({}, wide, block, many,
                If(V(many) < Int(256), Store(wide, {V(many)}, Float(1, DType::kFloat32))));
  EXPECT_EQ(Feature(half, "global_store"), 8);
  EXPECT_EQ(Feature(half, "requested_bytes"), 1024);
}

// C = A B of 1024 x 1024 with 64 x 64 tiles, K tiles of 16, 256 threads of 4 x 4: all by hand.
class TiledMatmul : public testing::Test {
 protected:
  // With `pipeline` at the end; asynchronous copies of A are of one element, as its tile is turned.
  static Program Lowered(const std::string& pipeline = "", int fetch = 4) {
    const auto program = std::make_shared<const TensorProgram>(
        *FindOperator(BuiltinOperators(), "matmul")
             ->Instantiate(*ParseShape("m=1024,n=1024,k=1024"), DType::kFloat32));
    const auto steps = ParseSteps(absl::StrCat(absl::Substitute(R"(
        split(C, i, [4, 4, 4])
        split(C, j, [2, 8, 4])
        split(C, j.3, [4])
        reorder(C, [i.0, j.0, i.1, j.1, i.2, j.2, i.3, j.3.0, j.3.1])
        fuse(C, [i.0, j.0])
        bind(C, i.0@j.0, block)
        fuse(C, [i.1, j.1, i.2, j.2])
        bind(C, i.1@j.1@i.2@j.2, thread)
        vectorize(C, j.3.1)
        set_scope(C.acc, local)
        compute_at(C.acc, C, i.1@j.1@i.2@j.2)
        split(C.acc, r, [16])
        reorder(C.acc, [r.0, r.1, i, j])
        cache_read(A, shared, C.acc)
        compute_at(A.shared, C.acc, r.0)
        storage_layout(A.shared, [d1, d0], 4, 0)
        fetch(A.shared, 256, $0)
        cache_read(A.shared, local, C.acc)
        compute_at(A.shared.local, C.acc, r.1)
        split(A.shared.local, d0, [4])
        reorder(A.shared.local, [d1, d0.0, d0.1])
        vectorize(A.shared.local, d0.1)
        cache_read(B, shared, C.acc)
        compute_at(B.shared, C.acc, r.0)
        fetch(B.shared, 256, 4)
        cache_read(B.shared, local, C.acc)
        compute_at(B.shared.local, C.acc, r.1)
        split(B.shared.local, d1, [4])
        reorder(B.shared.local, [d0, d1.0, d1.1])
        vectorize(B.shared.local, d1.1)
    )",
                                                                fetch),
                                               pipeline));
    EXPECT_TRUE(steps.ok()) << steps.status();
    const auto lowered = LowerSteps(program, *steps);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return *lowered;
  }
};

TEST_F(TiledMatmul, Work) {
  const Program p = Lowered();
  const double multiply_adds = std::pow(1024, 3);
  EXPECT_EQ(Feature(p, "kernels"), 1);
  EXPECT_EQ(Feature(p, "blocks"), 16 * 16);
  EXPECT_EQ(Feature(p, "threads"), 256);
  EXPECT_EQ(Feature(p, "flops"), 2 * multiply_adds);
  EXPECT_EQ(Feature(p, "fma"), multiply_adds / 32);
  EXPECT_EQ(Feature(p, "fma_per_thread"), 16 * 1024);
  EXPECT_EQ(Feature(p, "accumulators"), 16);
  EXPECT_EQ(Feature(p, "steps"), 64);
  EXPECT_EQ(Feature(p, "fma_per_step"), 16 * 16);
  // A tile of either matrix is 1024 elements, one 16-byte load a thread and step.
  EXPECT_EQ(Feature(p, "global_load"), 2.0 * 64 * 8 * 256);
  EXPECT_EQ(Feature(p, "load_width"), 16);
  // Four words of A and four of B at once, 16 times a step.
  EXPECT_EQ(Feature(p, "shared_load"), 2.0 * 1024 * 8 * 256);
  EXPECT_EQ(Feature(p, "shared_load_width"), 16);
  EXPECT_EQ(Feature(p, "barrier"), 2.0 * 64 * 8 * 256);
  EXPECT_EQ(Feature(p, "pipeline_depth"), 1);
  EXPECT_EQ(Feature(Lowered("pipeline(C.acc, r.0, registers, 2)\n"), "pipeline_depth"), 2);
}

TEST_F(TiledMatmul, CopiesInARow) {
  EXPECT_EQ(Feature(Lowered("pipeline(C.acc, r.0, registers, 2)\n"), "burst"), 0);
  const std::string async = "unroll(C.acc, r.1)\npipeline(C.acc, r.0, async_copy, 3)\n";
  const Program row = Lowered(async, 1), parts = Lowered(async + "interleave(C.acc, r.1)\n", 1);
  // Of 64 x 16 elements of either matrix each of 256 threads copies four, of A one by one, in all
  // steps but the last two.
  EXPECT_EQ(Feature(row, "burst"), (4 + 1) * 62 / 64.0);
  // One of A in each of the first four of 16 iterations, and of B in the first.
  EXPECT_EQ(Feature(parts, "burst"), (4 + 1) / 16.0);
  // Which copies as much, but for the last two tiles, of which the last is copied again.
  EXPECT_NEAR(Feature(parts, "async_copy"), Feature(row, "async_copy"),
              Feature(row, "async_copy") * 0.04);
  EXPECT_NEAR(Feature(parts, "l2_bytes"), Feature(row, "l2_bytes"),
              Feature(row, "l2_bytes") * 0.04);
  EXPECT_GT(Feature(row, "analytic_us"), Feature(parts, "analytic_us"));
}

TEST_F(TiledMatmul, BytesOfEachLevel) {
  const Program p = Lowered();
  const double matrix = 4.0 * 1024 * 1024;
  // Each block reads its 64 rows of A and 64 columns of B and writes 64 x 64 of C.
  EXPECT_EQ(Feature(p, "requested_bytes"), 256 * 2.0 * 64 * 1024 * 4 + matrix);
  EXPECT_EQ(Feature(p, "l1_bytes"), Feature(p, "requested_bytes"));
  EXPECT_EQ(Feature(p, "block_bytes"), 2.0 * 64 * 1024 * 4 + 64 * 64 * 4);
  // What a block reads it reads once, so nothing can be left in the first-level cache.
  EXPECT_EQ(Feature(p, "l2_bytes"), Feature(p, "requested_bytes"));
  EXPECT_EQ(Feature(p, "unique_bytes"), 3 * matrix);
  EXPECT_EQ(Feature(p, "dram_bytes"), 3 * matrix);
  EXPECT_EQ(Feature(p, "buffer0_unique"), matrix);
  EXPECT_EQ(Feature(p, "buffer0_reuse"), 16);
  EXPECT_EQ(Feature(p, "buffer2_requested"), matrix);
  EXPECT_EQ(Feature(p, "buffer2_reuse"), 1);
}

// Of 1,024 blocks every eighth has the first rows of a triangle, where a causal mask leaves least:
// the samples are of all of them.
TEST(Features, SampledBlocksAreNotAlikeModuloPowersOfTwo) {
  const auto op = ParseOperators(
      "op f(b, n) { in A[n, n], B[b, n, n] "
      "out C[z: b, i: n, j: n] = sum(r: n) select(r <= i, A[i, r], 0) * B[z, r, j] }");
  const auto program = std::make_shared<const TensorProgram>(
      *op->front().Instantiate(*ParseShape("b=128,n=64"), DType::kFloat32));
  const auto steps = ParseSteps(R"(
      split(C, i, [8])
      reorder(C, [z, i.0, i.1, j])
      fuse(C, [z, i.0])
      fuse(C, [i.1, j])
      bind(C, z@i.0, block)
      bind(C, i.1@j, thread)
      set_scope(C.acc, local)
      skip_masked(C.acc)
      compute_at(C.acc, C, i.1@j)
      split(C.acc, r, [8])
      reorder(C.acc, [r.0, r.1, z, i, j])
      cache_read(B, shared, C.acc)
      compute_at(B.shared, C.acc, r.0)
      fetch(B.shared, 512, 1)
  )");
  ASSERT_TRUE(steps.ok()) << steps.status();
  const auto lowered = LowerSteps(program, *steps);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  // One to eight tiles of eight.
  EXPECT_NEAR(Feature(*lowered, "flops") / program->Flops(), 4.5 / 8, 0.2) << ToString(*lowered);
}

// The search learns from the analytic time first, which knows that a scan saves most of the terms,
// and that it takes longer in chunks than where a block's threads hold what they need.
TEST(Features, ScansTakeLessTimeThanTheirDefinition) {
  const auto op = ParseOperators(
      "op f(m, n) { in X[m, n] out Y[i: m, j: n] = sum(r: n) select(r <= j, X[i, r], 0) }");
  const auto program = std::make_shared<const TensorProgram>(
      *op->front().Instantiate(*ParseShape("m=16,n=8192"), DType::kFloat32));
  const auto space = SearchSpace::Create(program, H100());
  ASSERT_TRUE(space.ok()) << space.status();
  Rng rng(1);
  double prefix = INFINITY, scan = INFINITY, definition = INFINITY;
  for (int draw = 0; draw < 60; ++draw) {
    const Point point = *space->Sample(rng);
    const auto lowered = space->Lower(point);
    if (!lowered.ok()) continue;
    const std::string sketch = space->Print(point);
    double& best = sketch.rfind("scan/", 0) == 0     ? scan
                   : sketch.rfind("prefix:", 0) == 0 ? prefix
                                                     : definition;
    best = std::min(best, Feature(*lowered, "analytic_us"));
  }
  EXPECT_LT(4 * scan, definition);
  EXPECT_LT(prefix, scan);
  EXPECT_LT(definition, INFINITY);
}

// 2,048 tiles of 64 x 64 for 132 blocks that stay, each of which is looked at as if it computed
// one: what is done is the same, but no more run at a time than are launched.
TEST(Features, BlocksThatStay) {
  const auto program = std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), "matmul_nt")
           ->Instantiate(*ParseShape("m=2048,n=4096,k=1024"), DType::kBFloat16));
  const auto space = SearchSpace::Create(program, H100());
  const auto lowered = [&](const char* persist) {
    const auto point = space->Parse(absl::StrCat(
        "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=64 k.steps=4 split_k=1 "
        "pipeline=3 in_flight=0 block_swizzle=1 min_blocks=0 bulk=1 staged=1 persist=",
        persist));
    return *space->Lower(*point);
  };
  const Program once = lowered("0"), staying = lowered("1");
  EXPECT_EQ(Feature(once, "turns"), 1);
  EXPECT_FLOAT_EQ(static_cast<float>(Feature(staying, "turns")), 2048.0F / 132);
  for (const char* same :
       {"blocks", "flops", "fma", "async_copy", "global_store", "unique_bytes"}) {
    EXPECT_EQ(Feature(once, same), Feature(staying, same)) << same;
  }
  EXPECT_EQ(Feature(once, "active_warps"), 12) << "three blocks, of some 58 KB each";
  EXPECT_EQ(Feature(staying, "active_warps"), 4);
}

TEST(Features, SumsOverKernels) {
  Program two = tests::VectorAdd(1 << 16);
  const double flops = Feature(two, "flops"), time = Feature(two, "analytic_us");
  EXPECT_EQ(flops, 1 << 16);
  two.kernels.push_back(two.kernels[0]);
  EXPECT_EQ(Feature(two, "kernels"), 2);
  EXPECT_EQ(Feature(two, "flops"), 2 * flops);
  EXPECT_NEAR(Feature(two, "analytic_us"), 2 * time, 1e-4 * time);
  EXPECT_EQ(Feature(two, "blocks"), 1 << 13);
}

TEST(Features, FinitePositiveTimesForEveryOperator) {
  const std::map<std::string, std::string> shapes = {
      {"vector_add", "n=1000"},
      {"window_sum", "n=1000"},
      {"transpose", "m=100,n=60"},
      {"matmul", "m=65,n=33,k=17"},
      {"matmul_nt", "m=64,n=64,k=64"},
      {"matmul_tn", "m=64,n=64,k=64"},
      {"batch_matmul", "b=2,m=32,n=32,k=32"},
      {"gemm_relu_add", "m=32,n=32,k=32"},
      {"conv2d", "n=1,ci=3,h=15,w=15,co=8,kh=3,kw=3,stride=2,pad=1"},
      {"conv2d_bias_relu", "n=1,ci=8,h=8,w=8,co=8,kh=3,kw=3,pad=1"},
      {"conv2d_nhwc", "n=1,ci=8,h=8,w=8,co=8,kh=3,kw=3,pad=1"},
      {"depthwise_conv2d", "n=1,c=8,h=14,w=14,kh=3,kw=3,pad=1"},
      {"softmax", "m=16,n=100"},
      {"layer_norm", "m=16,n=100"},
  };
  for (const Operator& op : BuiltinOperators()) {
    SCOPED_TRACE(op.name());
    ASSERT_TRUE(shapes.contains(op.name()));
    const auto program = std::make_shared<const TensorProgram>(
        *op.Instantiate(*ParseShape(shapes.at(op.name())), DType::kFloat32));
    const auto space = SearchSpace::Create(program, H100());
    ASSERT_TRUE(space.ok()) << space.status();
    Rng rng(11);
    for (int i = 0; i < 40; ++i) {
      const std::optional<Point> point = i == 0 ? space->Default() : space->Sample(rng);
      ASSERT_TRUE(point.has_value());
      SCOPED_TRACE(space->Print(*point));
      const auto lowered = LowerSteps(program, *space->Steps(*point));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const auto features = tuner::FeaturesOf(*lowered, H100());
      ASSERT_TRUE(features.ok()) << features.status();
      ASSERT_EQ(features->size(), tuner::FeatureTable().size());
      for (size_t f = 0; f < features->size(); ++f) {
        EXPECT_TRUE(std::isfinite((*features)[f]) && (*features)[f] >= 0)
            << tuner::FeatureTable()[f].name << " = " << (*features)[f];
      }
      EXPECT_GT(tuner::AnalyticTimeUs(*features), 0);
      // The same program, the same numbers.
      EXPECT_EQ(*tuner::FeaturesOf(*lowered, H100()), *features);
    }
  }
}

// As many operations inside each other as definitions may have, choices among them.
TEST(Features, DeepDefinitionsTakeLittleOfTheStack) {
  Expr value = Load(F32("A", Scope::kGlobal, {1 << 20}), {Int(0)});
  const auto a = value->buffer, c = F32("C", Scope::kGlobal, {64, 64});
  const Var block = MakeVar("block", 64), thread = MakeVar("t", 64);
  for (int i = 0; i < 4096; ++i) {
    value = Select(V(thread) < Int(i % 64), Float(1, DType::kFloat32) + value,
                   Float(i, DType::kFloat32));
  }
  const Program deep =
      OneKernel({a}, c, block, thread, Store(c, {V(block), V(thread)}, std::move(value)));
  EXPECT_GT(Feature(deep, "instructions"), 4096);
}

TEST(Features, WhatCannotBeAnswered) {
  Program none;
  none.op = "nothing";
  EXPECT_THAT(std::string(tuner::FeaturesOf(none, H100()).status().message()),
              testing::HasSubstr("nothing has no kernel"));
  Target target = H100();
  target.sm_count = 0;
  EXPECT_THAT(std::string(tuner::FeaturesOf(tests::VectorAdd(8), target).status().message()),
              testing::HasSubstr("has 0 multiprocessors"));
}

// A sum would say less than its terms: whatever adds to the analytic time can be named.
TEST(Features, EveryTermIsExplained) {
  std::set<std::string> names, explanations;
  for (size_t i = 0; i < tuner::kTerms; ++i) {
    const tuner::TermInfo& info = tuner::TermTable()[i];
    EXPECT_EQ(static_cast<size_t>(info.term), i) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
    EXPECT_FALSE(std::string(info.formula).empty() || std::string(info.source).empty());
    for (const bool processor : {false, true}) {
      const tuner::TermOn& on = info.On(processor);
      tuner::Terms one;
      one[info.term] = 3;
      EXPECT_EQ(tuner::TotalUs(one, processor, 2), 3 * (on.weight + on.exposed / 2)) << info.name;
      if (on.what == nullptr) {
        EXPECT_EQ(on.weight + on.exposed, 0) << info.name << " counts without a word";
        continue;
      }
      EXPECT_TRUE(explanations.insert(absl::StrCat(processor, on.what)).second) << on.what;
    }
    // Where the model learns from a term, it is under its name.
    const int feature = tuner::FeatureIndex(info.name);
    if (feature < 0) continue;
    EXPECT_EQ(tuner::FeatureTable()[static_cast<size_t>(feature)].formula, info.formula);
  }
}

// Launches first, then the longer of work and memory, or a little more where both take long.
TEST(Features, TermsAddUpToTheAnalyticTime) {
  tuner::Terms terms;
  terms[tuner::Term::kLaunch] = 1;
  terms[tuner::Term::kSpecial] = 3;
  terms[tuner::Term::kDram] = 4;
  EXPECT_EQ(tuner::TotalUs(terms, false), 1 + 5);
  terms[tuner::Term::kShared] = 10;
  EXPECT_NEAR(tuner::TotalUs(terms, false), 1 + std::hypot(3 + 7, 4), 1e-12);
  EXPECT_EQ(tuner::TotalUs(terms, true), 1);
}

// docs/features.md ends with the tables; UPDATE_GOLDEN=1 writes it anew.
TEST(Features, AreDocumented) {
  std::set<std::string> names;
  const auto on = [](const tuner::TermOn& on) {
    const std::string weight = absl::StrCat(
        on.weight,
        on.exposed > 0 ? absl::StrCat(" + ", on.exposed, " / warps of a scheduler") : "");
    return absl::StrCat(on.what == nullptr ? "" : on.what, " | ", on.what == nullptr ? "" : weight);
  };
  std::string table =
      "| term | on a GPU | weight | on a processor | weight |\n|---|---|---|---|---|\n";
  for (const tuner::TermInfo& term : tuner::TermTable()) {
    absl::StrAppend(&table, "| `", term.name, "` | ", on(term.gpu), " | ", on(term.processor),
                    " |\n");
  }
  absl::StrAppend(&table, "\n| feature | unit | what it is | source |\n|---|---|---|---|\n");
  for (const tuner::FeatureInfo& f : tuner::FeatureTable()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name << " twice";
    EXPECT_EQ(&tuner::FeatureTable()[static_cast<size_t>(tuner::FeatureIndex(f.name))], &f);
    absl::StrAppend(&table, "| `", f.name, "` | ", f.unit, " | ", f.formula, " | ", f.source,
                    " |\n");
  }
  EXPECT_EQ(tuner::FeatureIndex("no such feature"), -1);
  std::ifstream file(tests::SourceDir() + "/docs/features.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string prose = text.str().substr(0, text.str().find("| term |"));
  EXPECT_THAT(prose, testing::HasSubstr(absl::StrCat("version ", tuner::kFeatureVersion, "\n")));
  tests::ExpectGolden("../../docs/features.md", prose + table);
}

}  // namespace
}  // namespace heddle
