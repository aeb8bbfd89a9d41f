// Chains of two products whose statistics are taken along compute what their definition says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "tests/search_space/sketch/patterns/rolling_operators.h"

namespace heddle::search_space::rolling_test {
namespace {

struct Case {
  const char *op, *shape;
  const char* sketch = "rolling:";
  double most_error = kMostError;
};

constexpr char kInParts[] = "split_operand/rolling:";
constexpr char kPadded[] = "pad_terms/rolling:";
constexpr char kInPartsOfWarpgroups[] = "split_operand/rolling_warpgroup:";
constexpr double kMostErrorInParts = 8 * 0x1p-17 * 4;

class RollingKernels : public testing::TestWithParam<Case> {};

// Weights are rounded to 8 bits with the maximum so far and with that of the whole row: each is off
// by 2^-8 at most, and so is what they are averaged to, of values up to 8. Those in two parts are
// by 2^-17, and what is added up in float32 is by some times 2^-24.
TEST_P(RollingKernels, ComputeTheirProgram) {
  const auto program = ProgramOf(GetParam().op, GetParam().shape);
  const auto space = *SearchSpace::Create(program, TargetFor(GetParam().sketch));
  const TensorValues inputs = Inputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(
      space, 10, BeginsWith(GetParam().sketch), inputs,
      [&](const Program&, const TensorValues& got) {
        EXPECT_LT(WorstError(got, expected), GetParam().most_error);
      },
      /*seed=*/3);
}

INSTANTIATE_TEST_SUITE_P(
    All, RollingKernels,
    testing::Values(
        Case{"attention", "b=2,s=48,t=96,d=32,e=16"},
        Case{"attention", "b=1,s=37,t=64,d=24,e=40"},  // ends inside of matrices
        Case{"attention", "b=1,s=20,t=48,d=16,e=12"}, Case{"causal", "b=2,s=64,d=16"},
        Case{"causal", "b=1,s=80,d=16"}, Case{"window", "b=2,s=96,d=16,w=20"},
        Case{"rectified", "b=1,s=80,d=16"},
        Case{"rectified", "b=1,s=160,d=16", "rolling_warpgroup:"}, Case{"sum_of_all", "s=80,d=16"},
        Case{"sum_of_all", "s=160,d=16", "rolling_warpgroup:"}, Case{"unnormalised", "s=80,d=16"},
        Case{"maximum_of_all", "s=80,d=16", "rolling:", 64 * kMostError},
        Case{"grouped", "h=2,g=2,s=32,d=16"}, Case{"window_of_numbers", "b=2,s=96,d=16,w=20"},
        Case{"window_of_numbers", "b=1,s=160,d=16,w=20", "rolling_warpgroup:"},
        Case{"empty_rows", "s=40,t=96,d=16"},
        Case{"empty_rows", "s=80,t=96,d=16", "rolling_warpgroup:"},
        Case{"with_maximum", "s=40,t=96,d=16", "rolling:", 64 * kMostError},
        Case{"with_maximum", "s=96,t=128,d=16", "rolling_warpgroup:", 64 * kMostError},
        Case{"heads_last", "b=2,s=48,h=3,d=16"},
        Case{"heads_last", "b=1,s=96,h=2,d=16", "rolling_warpgroup:"},
        // Sums, and no averages, of weights that depend on their own scores alone.
        Case{"without_statistics", "b=2,s=48,d=16", "rolling:", 4 * kMostError},
        Case{"without_statistics", "b=1,s=96,d=16", "rolling_warpgroup:", 4 * kMostError},
        Case{"attention", "b=1,s=80,t=96,d=32,e=16", "rolling_warpgroup:"},
        Case{"attention", "b=1,s=37,t=64,d=48,e=48", "rolling_warpgroup:"},
        Case{"causal", "b=1,s=192,d=16", "rolling_warpgroup:"},
        Case{"window", "b=1,s=160,d=16,w=20", "rolling_warpgroup:"},
        Case{"grouped", "h=2,g=2,s=64,d=16", "rolling_warpgroup:"},
        Case{"grouped", "h=1,g=2,s=96,d=16", "rolling_warpgroup:"},
        // The softmax's statistics are outputs, too; weights are divided behind their sum.
        Case{"with_statistics", "b=2,s=64,d=16"},
        Case{"with_statistics", "b=1,s=192,d=16", "rolling_warpgroup:"},
        Case{"with_statistics", "b=2,s=37,d=16", kPadded},
        Case{"with_statistics", "b=2,s=64,d=16", "chain:"},
        Case{"float32_with_statistics", "b=2,s=64,d=16", kInParts, kMostErrorInParts},
        Case{"float32_with_statistics", "b=1,s=96,d=32", kInPartsOfWarpgroups, kMostErrorInParts},
        Case{"float32_weights", "b=2,s=64,d=16", kInParts, kMostErrorInParts},
        Case{"float32_weights", "b=1,s=80,d=24", kInParts, kMostErrorInParts},
        Case{"float32_biased", "h=2,g=2,s=48,d=16", kInParts, kMostErrorInParts},
        Case{"float32_weights", "b=1,s=96,d=32", kInPartsOfWarpgroups, kMostErrorInParts},
        // Terms that are no whole matrices.
        Case{"attention", "b=1,s=20,t=77,d=16,e=16", kPadded},
        Case{"causal", "b=2,s=37,d=16", kPadded}, Case{"window", "b=1,s=50,d=16,w=20", kPadded},
        Case{"grouped", "h=1,g=2,s=37,d=16", kPadded},
        Case{"attention", "b=1,s=37,t=197,d=16,e=16", "pad_terms/rolling_warpgroup:"},
        Case{"float32_weights", "b=1,s=37,d=16", kPadded, kMostErrorInParts},
        // The same weights in a chain that keeps rows of scores.
        Case{"causal", "b=2,s=64,d=16", "chain:"}, Case{"window", "b=2,s=64,d=16,w=20", "chain:"}),
    [](const auto& info) {
      std::string name = absl::StrCat(info.param.sketch, info.param.op, "_", info.param.shape);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

// Where a cache has no room for all keys and values, blocks that run at once are of a few results.
TEST(RollingTest, BlocksAreOfFewResultsAtOnce) {
  const auto program = ProgramOf("causal", "b=6,s=128,d=16");
  TensorValues expected = Inputs(*program);
  EvaluateAll(*program, expected);
  size_t in_turns = 0;
  for (const char* rule : {"rolling:", "rolling_warpgroup:"}) {
    Target target = TargetFor(rule);
    target.l2_bytes = int64_t{32} << 10;  // of 48 KB, of which half of it has a third
    const auto space = *SearchSpace::Create(program, target);
    for (const Point& point : PointsOf(space, 8, rule)) {
      const std::string steps = ToString(*space.Steps(point));
      SCOPED_TRACE(steps);
      in_turns += absl::StrContains(steps, "split(Y, z, [2])") ? 1 : 0;
      TensorValues got = Inputs(*program);
      const absl::Status ran = Interpret(*space.Lower(point), got, {});
      ASSERT_TRUE(ran.ok()) << ran;
      ExpectOutputsNear(*program, expected, got, 2e-2);
    }
  }
  EXPECT_GT(in_turns, 4);
}

// A mask that is added leaves out keys that come first: the largest score so far is -infinity, and
// the weights of these are 0 all the same.
TEST(RollingTest, KeysThatComeFirstMayBeLeftOut) {
  const auto program = ProgramOf("added_mask", "s=32,t=96,d=16");
  const auto space = *SearchSpace::Create(program, TargetFor("rolling"));
  const auto inputs = [&] {
    TensorValues values = Inputs(*program);
    for (size_t j = 0; j < 50; ++j) values.at("A")[j] = -HUGE_VAL;
    return values;
  };
  TensorValues expected = inputs();
  EvaluateAll(*program, expected);
  const std::vector<Point> points = PointsOf(space, 4);
  EXPECT_EQ(points.size(), 4U);
  for (const Point& point : points) {
    TensorValues got = inputs();
    const absl::Status ran = Interpret(*space.Lower(point), got, {});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_LT(WorstError(got, expected), kMostError) << space.Print(point);
  }
}

// Copies that are started between the products of a tile are of another one: a tile that the mask
// leaves out has not been copied, so that nothing of it is read.
TEST(RollingTest, NothingIsReadOfTilesThatAMaskLeavesOut) {
  const auto program = ProgramOf("window", "b=2,s=64,d=16,w=20");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto point = space.Parse(
      "chain: Y.z.vthread=1 Y.z.warps=1 Y.z.lanes=1 Y.z.tile=1 Y.i.vthread=1 Y.i.warps=1 "
      "Y.i.lanes=4 Y.i.tile=8 Y.x.vthread=1 Y.x.warps=4 Y.x.lanes=4 Y.x.tile=1 Y.r.inner=32 "
      "Y.T.fetch=4 Y.T.pad=0 Y.T.align=1 Y.V.fetch=4 Y.V.pad=0 Y.V.align=1 Y.fragments_out=0 "
      "Y.pipeline=2 Y.unroll=1 Y.prefetch=0 Y.interleave=1 Y.min_blocks=1 Y.slice_k=4 T.lanes=32 "
      "T.tile=2 T.warp_rows=8 T.pad=16 T.r.inner=16 T.one_tile=1 T.Q.fetch=8 T.Q.pad=0 T.Q.align=1 "
      "T.K.fetch=2 T.K.pad=0 T.K.align=1 T.fragments_out=0 T.pipeline=4 T.unroll=0 T.prefetch=0 "
      "T.interleave=0 skip_masked=1 last_first=1");
  ASSERT_TRUE(point.ok()) << point.status();
  TensorValues expected = Inputs(*program), got = Inputs(*program);
  EvaluateAll(*program, expected);
  const absl::Status ran = Interpret(*space.Lower(*point), got, {});
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_LT(WorstError(got, expected), kMostError);
}

}  // namespace
}  // namespace heddle::search_space::rolling_test
