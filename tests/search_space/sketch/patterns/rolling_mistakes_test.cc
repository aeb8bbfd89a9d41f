// What chains of two products cannot do without: fences, waits and factors that are left out are
// seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "search_space/check/interpret.h"
#include "search_space/ir/stmt.h"
#include "tests/search_space/mutate.h"
#include "tests/search_space/sketch/patterns/rolling_operators.h"

namespace heddle::search_space::rolling_test {
namespace {

// Weights that are written behind the last fence, or while products read them, are seen.
TEST(RollingTest, WeightsInRegistersAreFencedAndWaitedFor) {
  const auto program = ProgramOf("attention", "b=1,s=64,t=128,d=16,e=16");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto point = space.Parse(
      "rolling_warpgroup: groups=1 tiles=1 terms=64 pipeline=2 bulk=0 min_blocks=0 skip_masked=0 "
      "last_first=0");
  ASSERT_TRUE(point.ok()) << point.status();
  const auto without = [&](Intrinsic intrinsic, const char* buffer) {
    Program lowered = *space.Lower(*point);
    Stmt& body = lowered.kernels.at(0).body;
    body = RewriteStmt(
        body,
        [&](const Stmt& s) -> Stmt {
          const bool is_it = s->kind == StmtNode::Kind::kIntrin && s->intrinsic == intrinsic &&
                             (buffer == nullptr || s->buffer->name == buffer);
          return is_it ? Seq({}) : nullptr;
        },
        nullptr);
    TensorValues got = Inputs(*program);
    return std::string(Interpret(lowered, got, {}).message());
  };
  EXPECT_EQ(without(Intrinsic::kOperandFence, "none"), "");
  EXPECT_THAT(without(Intrinsic::kProductWait, "O.acc"), testing::HasSubstr("product"));
  EXPECT_THAT(without(Intrinsic::kProductWait, "T.acc"), testing::HasSubstr("product"));
  EXPECT_THAT(without(Intrinsic::kOperandFence, nullptr),
              testing::HasSubstr("was written since the last fence of operands"));
}

// Whoever does not make good for another maximum, in the sum of weights or in what they weigh, is
// seen by that.
TEST(RollingTest, AMissingFactorIsSeen) {
  const auto program = ProgramOf("causal", "b=2,s=64,d=16");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  TensorValues expected = Inputs(*program);
  EvaluateAll(*program, expected);
  for (const char* sum : {"L.acc", "O"}) {
    Program lowered = *space.Lower(*space.Parse(kCausal));
    int dropped = 0;
    Stmt& body = lowered.kernels.at(0).body;
    body = RewriteStmt(
        body,
        [&](const Stmt& s) -> Stmt {
          const bool scales = s->kind == StmtNode::Kind::kStore && s->buffer->name == sum &&
                              s->value->op == Op::kMul &&
                              absl::StartsWith(s->value->args[1]->buffer->name, "M.acc.factor");
          if (!scales) return nullptr;
          ++dropped;
          return Seq({});
        },
        nullptr);
    EXPECT_GE(dropped, 1) << sum;
    TensorValues got = Inputs(*program);
    const absl::Status ran = Interpret(lowered, got, {});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_GT(WorstError(got, expected), 4 * kMostError) << sum;
  }
}

// What keeps products, copies and threads apart cannot be left out, but for one of the two fences,
// for sums and for weights, in front of the second product.
TEST(RollingTest, MistakesBesideProductsAreSeen) {
  using tests::Removal;
  const auto program = ProgramOf("causal", "b=2,s=256,d=32");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto point = space.Parse(
      "rolling_warpgroup: groups=2 tiles=1 terms=64 pipeline=2 bulk=1 min_blocks=0 "
      "skip_masked=0 last_first=0");
  ASSERT_TRUE(point.ok()) << point.status();
  const Program lowered = *space.Lower(*point);
  const std::tuple<Removal, int, int> mistakes[] = {{Removal::kHandBack, 1, 0},
                                                    {Removal::kPhaseWait, 1, 0},
                                                    {Removal::kProductWait, 2, 0},
                                                    {Removal::kOperandFence, 3, 2}};
  for (const auto& [what, count, needless] : mistakes) {
    int n = 0, unseen = 0;
    for (; const auto damaged = tests::Remove(lowered, what, n); ++n) {
      TensorValues got = Inputs(*program);
      unseen += Interpret(*damaged, got, {}).ok() ? 1 : 0;
    }
    EXPECT_EQ(n, count) << ToString(lowered);
    EXPECT_EQ(unseen, needless) << ToString(lowered);
  }
}

}  // namespace
}  // namespace heddle::search_space::rolling_test
