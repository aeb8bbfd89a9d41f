// The analytic time of a processor against figures worked out by hand.
#include "tuner/model/analytic/processor_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/sample_programs.h"
#include "tuner/model/analytic/kernel_cost.h"
#include "tuner/model/analytic/profiler.h"
#include "tuner/model/features.h"

namespace heddle::tuner {
namespace {

using tests::F32;
using tests::OneKernel;
using tests::V;
using namespace search_space;

Target Processor() { return *FindTarget("cpu"); }

// The sum of `trips` rows of A, element by element: `blocks` blocks of `threads`.
KernelProfile SumRows(int64_t blocks, int64_t threads, int64_t trips, bool barrier = false) {
  const auto a = F32("A", Scope::kGlobal, {trips, blocks * threads});
  const auto c = F32("C", Scope::kGlobal, {blocks * threads});
  const auto sum = F32("sum", Scope::kLocal, {1});
  const Var block = MakeVar("block", blocks), thread = MakeVar("t", threads),
            r = MakeVar("r", trips);
  const Expr i = V(block) * Int(threads) + V(thread);
  Stmt step = Store(sum, {Int(0)}, Load(sum, {Int(0)}) + Load(a, {V(r), i}));
  if (barrier) step = Seq({step, Barrier()});
  const Program program = OneKernel(
      {a}, c, block, thread,
      Alloc(sum, Seq({Store(sum, {Int(0)}, Float(0, DType::kFloat32)),
                      For(r, ForKind::kSerial, step), Store(c, {i}, Load(sum, {Int(0)}))})));
  return ProfileOf(program.kernels[0]);
}

Terms Cost(const KernelProfile& profile, const Target& target = Processor()) {
  return ProcessorTerms(profile, target);
}

// 18 blocks on 4 cores: 5 on the busiest, 8 threads each, 2.6 cycles a ns.
constexpr double kThreadCycleUs = 5 * 8 / 2.6e3;

TEST(ProcessorCost, ALoopOfOneIterationIsNone) {
  const Terms c = Cost(SumRows(18, 8, 1));
  // Load, addition, store, and the loop's counter, comparison and branch.
  EXPECT_NEAR(c[Term::kIssue], 0.32 * 6 * kThreadCycleUs, 1e-9);
  EXPECT_EQ(c[Term::kLatency], 0);
  EXPECT_EQ(c[Term::kL1], 0);
  EXPECT_NEAR(c[Term::kLaunch], 35 + 5 * 55 / 2.6e3, 1e-9);
}

TEST(ProcessorCost, AnIterationKeepsWhatIsLocal) {
  // 10 times load, addition and the loop's 3, once a store; the sum is kept 10 times.
  const Terms c = Cost(SumRows(18, 8, 10));
  EXPECT_NEAR(c[Term::kIssue], 0.32 * 51 * kThreadCycleUs, 1e-9);
  EXPECT_NEAR(c[Term::kLatency], 1.45 * 10 * kThreadCycleUs, 1e-9);
  EXPECT_EQ(c[Term::kL1], 0);
  // A barrier in each iteration, over which the sum lives, too.
  EXPECT_NEAR(Cost(SumRows(18, 8, 10, true))[Term::kLatency],
              (1.45 * 20 + 9.4 * 10) * kThreadCycleUs, 1e-9);
}

TEST(ProcessorCost, ContextsBeyondTheFirstLevelMiss) {
  // A pointer of 8 bytes and a sum of 4 for each of 2,730 threads just fit into 32 KiB; of twice
  // as many threads half does.
  EXPECT_EQ(Cost(SumRows(4, 2730, 10))[Term::kL1], 0);
  const Terms c = Cost(SumRows(4, 5460, 10));
  EXPECT_NEAR(c[Term::kL1], 0.81 * 50 * 0.5 * 5460 / 2.6e3, 0.02);
}

TEST(ProcessorCost, MoreIsNeverFaster) {
  const auto time_of = [](const KernelProfile& profile, const Target& target = Processor()) {
    return TotalUs(Cost(profile, target), true);
  };
  const double time = time_of(SumRows(18, 64, 10));
  EXPECT_LT(time, time_of(SumRows(22, 64, 10)));  // a sixth round
  EXPECT_EQ(time, time_of(SumRows(20, 64, 10)));  // no more rounds
  EXPECT_LT(time, time_of(SumRows(18, 128, 10)));
  EXPECT_LT(time, time_of(SumRows(18, 64, 11)));
  EXPECT_LT(time, time_of(SumRows(18, 64, 10, true)));
  Target fewer = Processor(), slower = Processor();
  fewer.sm_count = 2;
  slower.clock_ghz = 1;
  EXPECT_LT(time, time_of(SumRows(18, 64, 10), fewer));
  EXPECT_LT(time, time_of(SumRows(18, 64, 10), slower));
}

TEST(ProcessorCost, IsTheAnalyticTimeOfProcessorsOnly) {
  KernelProfile profile = SumRows(18, 64, 10);
  Target target = Processor();
  const KernelCost processor = CostOf(profile, target);
  EXPECT_EQ(processor.total_us, TotalUs(ProcessorTerms(profile, target), true));
  target.processor = false;
  EXPECT_NE(processor.total_us, CostOf(profile, target).total_us);
}

TEST(ProcessorCost, EveryPointHasOne) {
  const std::vector<std::pair<std::string, std::map<std::string, int64_t>>> workloads = {
      {"matmul", {{"m", 96}, {"n", 100}, {"k", 64}}},
      {"transpose", {{"m", 65}, {"n", 128}}},
      {"softmax", {{"m", 7}, {"n", 300}}},
      {"depthwise_conv2d",
       {{"n", 1}, {"c", 8}, {"h", 14}, {"w", 14}, {"kh", 3}, {"kw", 3}, {"pad", 1}}}};
  for (const auto& [name, shape] : workloads) {
    auto op = FindOperator(BuiltinOperators(), name);
    auto program = std::make_shared<const TensorProgram>(*op->Instantiate(shape, DType::kFloat32));
    const SearchSpace space = *SearchSpace::Create(program, Processor());
    Rng rng(1);
    for (int i = 0; i < 30; ++i) {
      auto lowered = LowerSteps(program, *space.Steps(*space.Sample(rng)));
      ASSERT_TRUE(lowered.ok()) << name << ": " << lowered.status();
      const auto features = FeaturesOf(*lowered, space.target());
      ASSERT_TRUE(features.ok()) << features.status();
      for (const float f : *features) EXPECT_TRUE(std::isfinite(f)) << name;
      EXPECT_GT(AnalyticTimeUs(*features), 0) << name;
    }
  }
}

}  // namespace
}  // namespace heddle::tuner
