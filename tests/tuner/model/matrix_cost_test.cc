// What the analytic model makes of matrix instructions.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/analytic/kernel_cost.h"
#include "tuner/model/analytic/kernel_profile.h"
#include "tuner/model/analytic/profiler.h"
#include "tuner/model/analytic/terms.h"

namespace heddle::tuner {
namespace {

using namespace search_space;

Program LoweredOf(const char* op, const char* text, const Target& target,
                  const char* shape = "m=1024,n=1024,k=1024") {
  const auto program = std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kBFloat16));
  const auto space = SearchSpace::Create(program, target);
  const auto lowered = space->Lower(*space->Parse(text));
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return *lowered;
}

KernelProfile ProfileOfPoint(const char* op, const char* text, const Target& target) {
  return ProfileOf(LoweredOf(op, text, target).kernels.at(0));
}

constexpr char kPoint[] = "matrix: m.warps=2 n.warps=2 m.tiles=4 n.tiles=8 k.steps=4 pipeline=3";

TEST(MatrixCost, CountsProductsAsTheyAre) {
  const Target h100 = *FindTarget("h100");
  KernelProfile p = ProfileOfPoint("matmul", kPoint, h100);
  const double flops = 2.0 * 1024 * 1024 * 1024;
  EXPECT_EQ(p.matrix_flops * p.warps * p.blocks, flops);
  EXPECT_EQ(p.instructions.matrix * p.warps * p.blocks, flops / (2 * 16 * 8 * 16));
  EXPECT_EQ(p.instructions.fma, 0);
  // 64 blocks of 132 multiprocessors' at what instructions of warps reach there of the peak.
  const double at_peak = flops / 64 * 132 / MatrixGflops(h100) * 1e-3;
  EXPECT_NEAR(CostOf(p, h100).terms[Term::kFma], at_peak / 0.63, 0.2);
}

TEST(MatrixCost, CountsProductsOfWarpgroupsAsTheyAre) {
  const Target h100 = *FindTarget("h100");
  KernelProfile p = ProfileOfPoint(
      "matmul", "warpgroup: m.groups=2 m.tiles=1 columns=128 k.steps=4 pipeline=4", h100);
  const double flops = 2.0 * 1024 * 1024 * 1024;
  EXPECT_EQ(p.matrix_flops, 0);
  EXPECT_EQ(p.warpgroup_flops * p.warps * p.blocks, flops);
  // Of each instruction 64 rows and 128 columns of 16 elements.
  const double products = flops / (2 * 64 * 128 * 16);
  EXPECT_EQ(p.warpgroup_bytes * p.warps * p.blocks, products * (64 + 128) * 16 * 2);
  const double at_peak = flops / 64 * 132 / MatrixGflops(h100) * 1e-3;
  EXPECT_NEAR(CostOf(p, h100).terms[Term::kFma], at_peak, 0.2);
}

// 512 blocks, 132 at a time. The matrices of 32 MB each do not stay in the cache of 50 MB from one
// wave to the next; within a wave, blocks read each part of a row or column of tiles together.
TEST(MatrixCost, BlocksOfAWaveShareWhatTheyReadTogether) {
  const Target h100 = *FindTarget("h100");
  const Program program = LoweredOf("matmul",
                                    "warpgroup: m.groups=2 m.tiles=1 columns=256 k.steps=4 "
                                    "pipeline=4 in_flight=1 block_swizzle=8 bulk=1",
                                    h100, "m=4096,n=4096,k=4096");
  KernelProfile p = ProfileOf(program.kernels.at(0));
  const KernelCost cost = CostOf(p, h100);
  constexpr double kMatrix = 4096.0 * 4096 * 2;
  EXPECT_GT(cost.dram_bytes, 3 * kMatrix);
  EXPECT_LT(cost.dram_bytes, 10 * kMatrix);
  EXPECT_GT(cost.l2_bytes, 40 * kMatrix);
}

// Whoever fetches the tiles, the same is read; one thread starts bulk copies.
TEST(MatrixCost, BulkCopiesReadWhatOthersRead) {
  const Target h100 = *FindTarget("h100");
  const std::string point =
      "warpgroup: m.groups=2 m.tiles=1 columns=128 k.steps=4 pipeline=4 bulk=";
  const Program with = LoweredOf("matmul", (point + "1").c_str(), h100);
  const Program without = LoweredOf("matmul", (point + "0").c_str(), h100);
  KernelProfile bulk = ProfileOf(with.kernels.at(0)), others = ProfileOf(without.kernels.at(0));
  const auto read = [](const KernelProfile& p) {
    double bytes = 0;
    for (const Access& a : p.accesses) bytes += a.store ? 0 : a.requested();
    return bytes;
  };
  EXPECT_GT(read(bulk), 0);
  EXPECT_EQ(read(bulk), read(others));
  EXPECT_EQ(bulk.instructions.async_copy, 0);
  EXPECT_GT(others.instructions.async_copy, 0);
  EXPECT_EQ(bulk.burst, 0);
  const Terms less = CostOf(bulk, h100).terms, more = CostOf(others, h100).terms;
  EXPECT_NEAR(less[Term::kL2], more[Term::kL2], 0.1 * more[Term::kL2]);
  EXPECT_NEAR(less[Term::kDram], more[Term::kDram], 0.1 * more[Term::kDram]);
  EXPECT_LT(less[Term::kIssue], more[Term::kIssue]);
}

// A quarter of a line of 128 bytes takes bulk copies as long as a whole one.
TEST(MatrixCost, ShortRowsOfBulkCopiesTakeAsLongAsWholeOnes) {
  const Target h100 = *FindTarget("h100");
  const auto short_rows_us = [&](const char* steps, const char* bulk) {
    const std::string point = std::string("warpgroup: m.groups=2 m.tiles=1 columns=128 k.steps=") +
                              steps + " pipeline=4 bulk=" + bulk;
    const Program program = LoweredOf("matmul_nt", point.c_str(), h100);
    KernelProfile profile = ProfileOf(program.kernels.at(0));
    return CostOf(profile, h100).terms[Term::kBulkRows];
  };
  EXPECT_EQ(short_rows_us("4", "1"), 0);
  EXPECT_EQ(short_rows_us("1", "0"), 0);
  const double quarters = short_rows_us("1", "1"), halves = short_rows_us("2", "1");
  EXPECT_GT(halves, 0);
  // Half of a row lacks 1/2 of it, a quarter 3/4, of twice as many rows.
  EXPECT_NEAR(quarters, 3 * halves, 0.05 * quarters);
}

// Rows of every length are read without conflicts of banks, transposed or not.
TEST(MatrixCost, RowsLieInDifferentBanks) {
  const Target h100 = *FindTarget("h100");
  for (const char* op : {"matmul", "matmul_nt", "matmul_tn"}) {
    for (const char* steps : {"1", "2", "4"}) {
      const std::string text =
          std::string("matrix: m.warps=2 n.warps=2 m.tiles=3 n.tiles=6 k.steps=") + steps +
          " pipeline=2";
      const KernelProfile p = ProfileOfPoint(op, text.c_str(), h100);
      int reads = 0;
      for (const Access& a : p.accesses) {
        if (a.buffer->scope != Scope::kShared || a.store) continue;
        ++reads;
        EXPECT_EQ(a.wavefronts, a.ideal_wavefronts) << op << " " << text << " " << a.buffer->name;
      }
      EXPECT_EQ(reads, 2);
    }
  }
}

}  // namespace
}  // namespace heddle::tuner
