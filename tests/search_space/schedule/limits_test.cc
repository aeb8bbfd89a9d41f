// What hostile operators may cost: spaces and kernels whose size follows the text's, not 2 to the
// power of its stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/reference/samples.h"
#include "search_space/schedule/inline_limits.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/least_flops.h"
#include "search_space/sketch/search_space.h"
#include "tests/hostile_operators.h"
#include "tests/support.h"

namespace heddle::search_space {
namespace {

using testing::HasSubstr;

std::shared_ptr<const TensorProgram> Make(const std::string& text,
                                          const std::map<std::string, int64_t>& shape) {
  const auto operators = ParseOperators(text);
  EXPECT_TRUE(operators.ok()) << operators.status() << "\n" << text;
  if (!operators.ok()) return nullptr;
  auto program = operators->front().Instantiate(shape, DType::kFloat32);
  if (!program.ok()) {
    EXPECT_TRUE(absl::IsInvalidArgument(program.status())) << program.status();
    return nullptr;
  }
  return std::make_shared<const TensorProgram>(*std::move(program));
}

// Of everything that the kernels compute and of their indices.
int64_t NodesOf(const Program& program) {
  int64_t nodes = 0;
  for (const Kernel& kernel : program.kernels) {
    VisitStmts(kernel.body, [&](const StmtNode& statement) {
      VisitExprs(statement, [&](const Expr& e) { Visit(e, [&](const Expr&) { ++nodes; }); });
    });
  }
  return nodes;
}

TEST(Limits, AStageThatDoublesTooOftenIsAKernelOfItsOwn) {
  const Target target = *FindTarget("h100");
  const auto program = Make(tests::DoublingChain(40), {{"n", 64}});
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  const auto steps = space->Steps(space->Default());
  ASSERT_TRUE(steps.ok()) << steps.status();
  const auto lowered = LowerSteps(program, *steps);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernels.size(), 4U);
  EXPECT_LT(NodesOf(*lowered), 4 * kMaxInlinedNodes);
}

// Two to the power of forty factors are not looked at one by one, where nobody made a space either.
TEST(Limits, FactorsOfASumMayBeManyMoreThanItsText) {
  const Target target = *FindTarget("h100");
  for (const bool masked : {false, true}) {
    const auto program = Make(tests::DoublingFactors(40, masked), {{"n", 64}});
    ASSERT_NE(program, nullptr);
    EXPECT_GT(LeastFlops(*program), 0);
    const auto space = SearchSpace::Create(program, target);
    ASSERT_TRUE(space.ok()) << space.status();
    EXPECT_TRUE(space->Steps(space->Default()).ok());
  }
}

// Across the border between two kernels too.
TEST(Limits, WhatIsNotInlinedComputesTheSame) {
  const Target target = *FindTarget("h100");
  const auto program = Make(tests::DoublingChain(14), {{"n", 5}});
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  const auto lowered = LowerSteps(program, *space->Steps(space->Default()));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernels.size(), 2U);
  TensorValues values{{"T0", {0, 1, -1, 0.9999, 1.00005}}};
  TensorValues expected = values;
  EvaluateAll(*program, expected);
  const absl::Status ran = Interpret(*lowered, values);
  ASSERT_TRUE(ran.ok()) << ran;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(values["T14"][i], expected["T14"][i], 1e-2 * std::abs(expected["T14"][i])) << i;
  }
}

TEST(Limits, ARefusalToInlineNamesTheStagesAndTheLimit) {
  Schedule schedule(Make(tests::DoublingChain(20), {{"n", 64}}));
  absl::Status status;
  for (int s = 1; s < 20 && status.ok(); ++s) {
    status = Apply(Step(ComputeInline{absl::StrCat("T", s)}), schedule);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("T11"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("T12 would have more than 8192"));
  Schedule indices(
      Make("op f(n) { in A[n] T[i: n] = A[(i / 2 + i / 3 + i / 4) / 3] "
           "U[i: n] = T[(i / 2 + i / 3 + i / 4) / 3] "
           "V[i: n] = U[(i / 2 + i / 3 + i / 4) / 3] "
           "out W[i: n] = V[(i / 2 + i / 3 + i / 4) / 3] }",
           {{"n", 64}}));
  for (const char* stage : {"T", "U"}) EXPECT_TRUE(Apply(Step(ComputeInline{stage}), indices).ok());
  status = Apply(Step(ComputeInline{"V"}), indices);
  EXPECT_THAT(std::string(status.message()), HasSubstr("an index in the definition of W"));
}

// Every stage swaps two axes or turns them all: as many ways through the stages as permutations.
TEST(Limits, SamplesOfPermutedAxesCostNoMoreThanTheirElements) {
  std::string text =
      "op permuted(n) {\n  in X[n, n, n, n, n, n, n, n, n]\n  S[a: n, b: n, c: n, d: "
      "n, e: n, f: n, g: n, h: n] = sum(r: n) X[a, b, c, d, e, f, g, h, r]\n";
  std::string before = "S";
  for (int s = 1; s <= 60; ++s) {
    const std::string name = absl::StrCat("T", s);
    absl::StrAppend(&text, s == 60 ? "out " : "", name,
                    "[a: n, b: n, c: n, d: n, e: n, f: n, g: n, h: n] = ", before,
                    "[b, a, c, d, e, f, g, h] + ", before, "[b, c, d, e, f, g, h, a]\n");
    before = name;
  }
  const auto program = Make(text + "}", {{"n", 2}});
  ASSERT_NE(program, nullptr);
  int64_t read = 0;
  const auto samples = EvaluateSamples(
      *program, [&](int, int64_t) { return ++read, 1.0F; }, 256, 1, int64_t{1} << 40, 1);
  EXPECT_EQ(samples.size(), 256U);
  EXPECT_LE(read, 2 * 512);  // of all elements: what is known is not computed again
  EXPECT_EQ(samples[0].value, std::ldexp(2, 60));
}

void ExpectCheap(uint64_t seed) {
  const Target target = *FindTarget("h100");
  const tests::HostileOperator hostile = tests::HostileOperators(seed).Next();
  const std::string what = absl::StrCat("seed ", seed, ": ", hostile.text);
  const auto program = Make(hostile.text, hostile.shape);
  if (program == nullptr) return;
  const auto space = SearchSpace::Create(program, target);
  if (!space.ok()) {
    EXPECT_TRUE(absl::IsFailedPrecondition(space.status())) << space.status() << what;
    return;
  }
  const auto lowered = LowerSteps(program, *space->Steps(space->Default()));
  ASSERT_TRUE(lowered.ok()) << lowered.status() << what;
  EXPECT_LT(NodesOf(*lowered), 64 * 2 * kMaxInlinedNodes) << what;
}

TEST(Limits, HostileOperatorsAreCheapOrRefused) {
  for (uint64_t seed = tests::Seed() % 10; seed < 2000; seed += 10) ExpectCheap(seed);
}

TEST(Limits, LongManyHostileOperatorsAreCheapOrRefused) {
  for (uint64_t seed = 0; seed < 2000; ++seed) ExpectCheap(seed);
}

}  // namespace
}  // namespace heddle::search_space
