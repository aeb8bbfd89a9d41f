// Chains of two products on matrix units whose statistics are taken along: which programs are one,
// and what their kernel looks like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/stmt.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "tests/golden.h"
#include "tests/search_space/sketch/patterns/rolling_operators.h"

namespace heddle::search_space::rolling_test {
namespace {

bool IsRolling(const std::string& op, const std::string& shape, DType type = DType::kBFloat16,
               const char* target = "a100") {
  const auto space = SearchSpace::Create(ProgramOf(op, shape, type), *FindTarget(target));
  return space.ok() && !PointsOf(*space, 1).empty();
}

TEST(RollingTest, IsFoundByWhatReadsWhat) {
  EXPECT_TRUE(IsRolling("attention", "b=2,s=64,t=64,d=32,e=32"));
  EXPECT_TRUE(IsRolling("causal", "b=2,s=64,d=32"));
  // Warpgroups' instructions supersede these, but where there are few rows.
  EXPECT_FALSE(IsRolling("causal", "b=2,s=64,d=32", DType::kBFloat16, "h100"));
  EXPECT_TRUE(IsRolling("attention", "b=2,s=32,t=64,d=32,e=32", DType::kBFloat16, "h100"));
  EXPECT_TRUE(IsRolling("grouped", "h=2,g=2,s=64,d=32"));
  EXPECT_TRUE(IsRolling("smallest", "s=64,t=64,d=32"));
  EXPECT_TRUE(IsRolling("with_maximum", "s=64,t=64,d=32"));
  // No device has units for float32, nor this one any.
  EXPECT_FALSE(IsRolling("attention", "b=2,s=64,t=64,d=32,e=32", DType::kFloat32));
  EXPECT_FALSE(IsRolling("attention", "b=2,s=64,t=64,d=32,e=32", DType::kBFloat16, "v100"));
  // Weights of float32 would lose digits.
  EXPECT_FALSE(IsRolling("unconverted", "s=64,t=64,d=32"));
  // Nothing makes good for another maximum, or for a sum before its end.
  EXPECT_FALSE(IsRolling("other_dependence", "s=64,t=64,d=32"));
  // Nothing added up so far may be multiplied by infinity.
  EXPECT_FALSE(IsRolling("growing", "s=64,t=64,d=32"));
  // A factor that makes good for what is rectified at 0 does not for what is at other numbers.
  EXPECT_TRUE(IsRolling("rectified", "b=1,s=64,d=32"));
  EXPECT_FALSE(IsRolling("floored", "s=64,t=64,d=32"));
  EXPECT_FALSE(IsRolling("sum_inside", "s=64,t=64,d=32"));
  EXPECT_FALSE(IsRolling("other_row", "s=64,d=32"));
  // 63 terms are no parts of whole matrices.
  EXPECT_FALSE(IsRolling("attention", "b=2,s=64,t=63,d=32,e=32"));
}

// Steps that take a minimum along, on programs that differ in how the weights depend on it alone.
TEST(RollingTest, StatisticsThatNothingMakesGoodForAreRefused) {
  const std::string shape = "s=64,t=64,d=32";
  const auto space = *SearchSpace::Create(ProgramOf("smallest", shape), TargetFor("rolling"));
  const std::vector<Step> steps = *space.Steps(PointsOf(space, 1).at(0));
  const auto applied = [&](const std::string& op) {
    Schedule schedule(ProgramOf(op, op == "other_row" ? "s=64,d=32" : shape));
    return std::string(Apply(steps, schedule).message());
  };
  EXPECT_EQ(applied("smallest"), "");
  for (const char* op : {"other_dependence", "growing", "sum_inside", "other_row"}) {
    EXPECT_THAT(applied(op), testing::HasSubstr("the terms of O depend on M.acc so that no factor "
                                                "makes good for what it is before its end"))
        << op;
  }
}

void ExpectOneKernel(const char* shape, const char* text, const char* golden) {
  const auto space = *SearchSpace::Create(ProgramOf("causal", shape), *FindTarget("h100"));
  const auto point = space.Parse(text);
  ASSERT_TRUE(point.ok()) << point.status();
  const auto program = space.Lower(*point);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->kernels.size(), 1);
  tests::ExpectGolden(
      golden, absl::StrCat(space.Print(*point), "\n\n", ToString(*space.Steps(*point)), "\n",
                           ToString(*program)));
}

TEST(RollingTest, IsOneKernel) { ExpectOneKernel("b=2,s=64,d=32", kCausal, "loops/rolling.txt"); }

TEST(RollingTest, IsOneKernelOfWarpgroups) {
  ExpectOneKernel("b=2,s=256,d=32",
                  "rolling_warpgroup: groups=2 tiles=1 terms=64 pipeline=2 bulk=1 min_blocks=0 "
                  "skip_masked=1 last_first=1",
                  "loops/rolling_warpgroup.txt");
}

// Behind kernels that make its operands a chain is one of the partition's.
TEST(RollingTest, MayComeBehindOtherKernels) {
  const auto program = ProgramOf("pooled_keys", "s=4096,t=1024,d=64");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  Rng rng(1);
  size_t rolling = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string text = space.Print(*space.Sample(rng));
    const std::string sketch = text.substr(0, text.find(':'));
    const bool is_part = absl::StartsWith(sketch, "parts/");
    rolling += is_part && absl::StrContains(sketch, "+rolling") ? 1 : 0;
  }
  EXPECT_GE(rolling, 10);
}

// A bias, such as `grouped` has, is read once for an iteration, before the scores are there; what
// another lane holds is not.
TEST(RollingTest, WhatIsAddedToScoresIsReadAhead) {
  for (const char* rule : {"rolling:", "rolling_warpgroup:"}) {
    const auto program = ProgramOf("grouped", "h=2,g=2,s=64,d=16");
    const auto space = *SearchSpace::Create(program, TargetFor(rule));
    size_t ahead = 0;
    for (const Point& point : PointsOf(space, 20, rule)) {
      const std::string text = space.Print(point);
      if (!absl::StrContains(text, "read_ahead=1")) continue;
      ++ahead;
      int reads = 0, before = 0;
      bool multiplied = false;
      VisitStmts(space.Lower(point)->kernels.at(0).body, [&](const StmtNode& s) {
        multiplied = multiplied || s.intrinsic == Intrinsic::kMatrixMultiply ||
                     s.intrinsic == Intrinsic::kWarpgroupMultiply;
        if (s.kind != StmtNode::Kind::kStore) return;
        for (const Expr& load : LoadsIn(s.value)) {
          if (load->buffer->name != "B") continue;
          ++reads;
          before += multiplied ? 0 : 1;
        }
      });
      EXPECT_EQ(reads, 1) << text;
      EXPECT_EQ(before, 1) << text;
    }
    EXPECT_GE(ahead, 5) << rule;
  }
  const auto domain = [](const char* op, const char* shape) {
    std::set<bool> ahead;
    const auto space = *SearchSpace::Create(ProgramOf(op, shape), TargetFor("rolling"));
    for (const Point& point : PointsOf(space, 20)) {
      ahead.insert(absl::StrContains(space.Print(point), "read_ahead=1"));
    }
    return ahead;
  };
  EXPECT_THAT(domain("causal", "b=2,s=64,d=32"), testing::ElementsAre(false));
  EXPECT_THAT(domain("added_mask", "s=64,t=64,d=32"), testing::ElementsAre(false)) << "no rows";
}

// Of several tensors only those that the chain alone reads, at the score's own element, as float32.
TEST(RollingTest, WhatIsReadOtherwiseIsNotHeld) {
  const auto held = [](const char* op) {
    const auto program = ProgramOf(op, "s=64,d=16");
    TensorValues expected = Inputs(*program);
    EvaluateAll(*program, expected);
    std::set<std::string> tensors;
    for (const char* rule : {"rolling:", "rolling_warpgroup:"}) {
      const auto space = *SearchSpace::Create(program, TargetFor(rule));
      const std::vector<Point> points = PointsOf(space, 8, rule);
      EXPECT_EQ(points.size(), 8) << op << " " << rule;
      for (const Point& point : points) {
        const std::vector<Step> steps = *space.Steps(point);
        for (const Step& step : steps) {
          const auto* read = std::get_if<CacheRead>(&step);
          if (read != nullptr && read->scope == Scope::kLocal) tensors.insert(read->tensor);
        }
        TensorValues got = Inputs(*program);
        const auto lowered = space.Lower(point);
        EXPECT_TRUE(lowered.ok()) << lowered.status() << space.Print(point);
        if (!lowered.ok()) continue;
        const absl::Status ran = Interpret(*lowered, got, {});
        EXPECT_TRUE(ran.ok()) << ran;
        EXPECT_LT(WorstError(got, expected), 64 * kMostError) << space.Print(point);  // a sum of 64
      }
    }
    return tensors;
  };
  EXPECT_THAT(held("transposed_bias"), testing::ElementsAre("C"));
  EXPECT_THAT(held("rounded_bias"), testing::ElementsAre("C"));
  EXPECT_THAT(held("bias_read_elsewhere"), testing::IsEmpty());
}

// Iterations are left out where no statistic needs their terms, either.
TEST(RollingTest, TermsThatAStatisticNeedsAreNotLeftOut) {
  const auto skips = [](const char* op, const char* shape) {
    const auto space = *SearchSpace::Create(ProgramOf(op, shape), TargetFor("rolling"));
    const std::vector<Point> points = PointsOf(space, 40);
    EXPECT_EQ(points.size(), 40U);
    return std::any_of(points.begin(), points.end(), [&](const Point& point) {
      return absl::StrContains(space.Print(point), "skip_masked=1");
    });
  };
  EXPECT_TRUE(skips("rectified", "b=2,s=256,d=32"));
  EXPECT_FALSE(skips("sum_of_all", "s=256,d=32"));
  EXPECT_FALSE(skips("maximum_of_all", "s=256,d=32"));
  EXPECT_FALSE(skips("unnormalised", "s=256,d=32"));
  const auto space =
      *SearchSpace::Create(ProgramOf("sum_of_all", "s=256,d=32"), TargetFor("rolling"));
  const std::vector<Step> steps = *space.Steps(PointsOf(space, 1).at(0));
  Schedule schedule(ProgramOf("sum_of_all", "s=256,d=32"));
  ASSERT_TRUE(Apply(Step(SkipMasked{"O"}), schedule).ok());
  EXPECT_THAT(std::string(Apply(steps, schedule).message()),
              testing::HasSubstr("are of use where those of O"));
}

// The blocks that have most to do under a causal mask.
TEST(RollingTest, BlocksOfTheLastRowsMostlyComeFirstUnderAMask) {
  const auto space =
      *SearchSpace::Create(ProgramOf("causal", "b=2,s=256,d=32"), TargetFor("rolling"));
  const std::vector<Point> points = PointsOf(space, 60);
  const auto first = std::count_if(points.begin(), points.end(), [&](const Point& p) {
    return absl::StrContains(space.Print(p), " last_first=1");
  });
  ASSERT_EQ(points.size(), 60U);
  EXPECT_GT(first, 30);
  EXPECT_LT(first, 60);
}

// What does not fit is refused for the limit that it breaks.
TEST(RollingTest, RefusalsNameTheLimit) {
  const auto refusal = [](const std::string& changed, const std::string& to) {
    const auto space =
        *SearchSpace::Create(ProgramOf("causal", "b=2,s=2048,d=128"), *FindTarget("h100"));
    std::string text = kCausal;
    text.replace(text.find(changed), changed.size(), to);
    const auto point = space.Parse(text);
    return point.ok() ? std::string(space.Check(*point).message())
                      : std::string(point.status().message());
  };
  EXPECT_EQ(refusal("last_first=0", "last_first=0"), "");
  EXPECT_EQ(refusal("skip_masked=1 last_first=0", "skip_masked=0 last_first=1"),
            "Y: blocks that leave nothing out have all the same to do");
  EXPECT_THAT(refusal("tiles=1", "tiles=4"), testing::HasSubstr("registers, at most"));
  EXPECT_THAT(refusal("terms=32", "terms=48"), testing::HasSubstr("terms"));
  EXPECT_THAT(refusal("pipeline=2 min_blocks=0", "pipeline=4 min_blocks=4"),
              testing::HasSubstr("blocks a multiprocessor, at most 3"));
}

}  // namespace
}  // namespace heddle::search_space::rolling_test
