// Tiles that masks leave out, where these read tensors of indices, such as the lengths of
// sequences, or say so by the least score: that they are skipped, and that kernels compute the
// definition all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/least_flops.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::masked_tiles_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op lengths(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], N[b]: index(s)
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  O[z: b, i: s, x: d] = sum(r: s) select(r <= N[z], T[z, i, r], 0) * V[z, r, x]
  out Y[z: b, i: s, x: d] = O[z, i, x] * 2
}
op prefix(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], N[b]: index(s)
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i || r <= N[z], T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i || j <= N[z], exp(T[z, i, j] / 2 - M[z, i] / 2), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op of_rows(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], N[b, s]: index(s)
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= N[z, i], T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= N[z, i], exp(T[z, i, j] / 2 - M[z, i] / 2), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op padded_rows(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], N[b]: index(s)
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(i <= N[z] && r <= N[z], T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(i <= N[z] && j <= N[z], exp(T[z, i, j] / 2 - M[z, i] / 2), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = select(L[z, i] > 0, O[z, i, x] / L[z, i], 0)
}
op filled(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  S[z: b, i: s, j: s] = select(j <= i, T[z, i, j] / 2, -3.0e38)
  M[z: b, i: s] = max(r: s) S[z, i, r]
  E[z: b, i: s, j: s]: bfloat16 = exp(S[z, i, j] - M[z, i])
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op neighbours(b, s, d, w, g) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  S[z: b, i: s, j: s] = select(i - j <= w && j - i <= w || i < g || j < g, T[z, i, j] / 2, -3.0e38)
  M[z: b, i: s] = max(r: s) S[z, i, r]
  E[z: b, i: s, j: s]: bfloat16 = exp(S[z, i, j] - M[z, i])
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op blocks(b, s, d, w) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  S[z: b, i: s, j: s] = select(i / w == j / w, T[z, i, j] / 2, -3.0e38)
  M[z: b, i: s] = max(r: s) S[z, i, r]
  E[z: b, i: s, j: s]: bfloat16 = exp(S[z, i, j] - M[z, i])
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op odd_blocks(b, s, d, w) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(x: d) Q[z, i, x] * K[z, j, x]
  S[z: b, i: s, j: s]: bfloat16 = select((i + 3) / w == (j + 5) / w, T[z, i, j] / 16, 0)
  out Y[z: b, i: s, x: d]: float32 = sum(j: s) S[z, i, j] * V[z, j, x]
}
op filled_behind(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], N[b]: index(s)
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  S[z: b, i: s, j: s] = select(j <= N[z], T[z, i, j] / 2, -3.0e38)
  M[z: b, i: s] = max(r: s) S[z, i, r]
  E[z: b, i: s, j: s]: bfloat16 = exp(S[z, i, j] - M[z, i])
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op filled_rows(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], N[b]: index(s)
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  S[z: b, i: s, j: s] = select(j < N[z], T[z, i, j] / 2, -3.0e38)
  M[z: b, i: s] = max(r: s) S[z, i, r]
  E[z: b, i: s, j: s]: bfloat16 = exp(S[z, i, j] - M[z, i])
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op normalised(b, s, h, d) {
  in Q[b, s, h, d], K[b, s, h, d], V[b, s, h, d]
  T[z: b, p: h, i: s, j: s] = sum(r: d) Q[z, i, p, r] * K[z, j, p, r]
  E[z: b, p: h, i: s, j: s]: bfloat16 = select(j <= i, T[z, p, i, j] * sigmoid(T[z, p, i, j]), 0)
  O[z: b, p: h, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, p, x]
  S[z: b, p: h, i: s] = sum(x: d) O[z, p, i, x] * O[z, p, i, x]
  out Y[z: b, i: s, p: h, x: d]: float32 = O[z, p, i, x] * rsqrt(S[z, p, i] / d + 1)
}
op other_greatest(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  S[z: b, i: s, j: s] = select(j <= i, T[z, i, j] / 2, -3.0e38)
  U[z: b, i: s, j: s] = select(j < i, T[z, i, j] / 2, -3.0e38)
  M[z: b, i: s] = max(r: s) U[z, i, r]
  E[z: b, i: s, j: s]: bfloat16 = exp(S[z, i, j] - M[z, i])
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x]
}
op other_axis(b, s, d) {
  in T[b, s, s, s], V[s, d]
  S[z: b, i: s, j: s, k: s] = select(j <= i, T[z, i, j, k], -3.0e38)
  M[z: b, i: s, j: s] = max(k: s) S[z, i, j, k]
  E[z: b, i: s, j: s, k: s]: bfloat16 = exp(S[z, i, j, k] - M[z, i, j])
  O[z: b, i: s, x: d] = sum(j: s, k: s) E[z, i, j, k] * V[k, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kBFloat16) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

TEST(MaskedTiles, SumsAreExact) {
  ExpectPointsCompute(Made("lengths", "b=2,s=64,d=8", DType::kFloat32), *FindTarget("h100"),
                      "skip_masked=1");
}

// Blocks begin anywhere in a tile, of which threads have parts.
TEST(MaskedTiles, OfBlocksThatCrossTilesNothingIsReadThatWasNotFetched) {
  Target target = TargetFor("chain");
  target.peak_gflops = 1;
  const auto program = Made("odd_blocks", "b=1,s=96,d=16,w=24");
  const auto space = *SearchSpace::Create(program, target);
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto is_wanted = [](const std::string& text) {
    return absl::StartsWith(text, "chain:") && absl::StrContains(text, "slice_k=2") &&
           absl::StrContains(text, "skip_masked=1");
  };
  ForDrawnPoints(space, 28, is_wanted, inputs, [&](const Program&, const TensorValues& got) {
    EXPECT_EQ(got.at("Y"), expected.at("Y"));
  });
}

// How many terms tensors of indices leave is not known; those that others do are.
TEST(MaskedTiles, LeaveOutAllThatIsNotKnown) {
  EXPECT_LT(LeastFlops(*Made("lengths", "b=2,s=64,d=8")),
            Made("lengths", "b=2,s=64,d=8")->Flops() / 8);
  const double all = Made("prefix", "b=1,s=256,d=16")->Flops();
  EXPECT_LT(LeastFlops(*Made("prefix", "b=1,s=256,d=16")), 0.6 * all);
  EXPECT_GT(LeastFlops(*Made("prefix", "b=1,s=256,d=16")), 0.4 * all);
}

// Near the diagonal, of the first few rows or columns, or in the same block.
TEST(MaskedTiles, SeveralComparisonsAreAMask) {
  const auto program = Made("neighbours", "b=1,s=256,d=16,w=16,g=4");
  EXPECT_LT(LeastFlops(*program), 0.4 * program->Flops());
  const auto blocks = Made("blocks", "b=1,s=256,d=16,w=32");
  EXPECT_LT(LeastFlops(*blocks), 0.4 * blocks->Flops());
}

// Of rows in which nothing is left all weights are 1; such a row may be the greatest's, too.
TEST(MaskedTiles, RowsOfWhichNothingIsLeftAreNotSkipped) {
  const auto skips = [](const char* op) {
    Schedule schedule(Made(op, "b=2,s=64,d=16"));
    return Apply(SkipMasked{"O"}, schedule).ok();
  };
  EXPECT_TRUE(skips("filled"));
  EXPECT_TRUE(skips("filled_behind"));
  EXPECT_FALSE(skips("filled_rows"));
  EXPECT_FALSE(skips("other_greatest"));
  // Rows of j have nothing left where j > i.
  EXPECT_FALSE(skips("other_axis"));
}

struct Case {
  const char *op, *shape, *sketch;
};

class MaskedAttention : public testing::TestWithParam<Case> {};

// Scores from some -16 to 16; weights are rounded to 8 bits, and so are what they average, of
// values up to 4.
TEST_P(MaskedAttention, ComputesItsProgram) {
  const auto& [op, shape, sketch] = GetParam();
  const auto program = Made(op, shape);
  const auto space = *SearchSpace::Create(program, TargetFor(sketch));
  TensorValues inputs = IntegerInputs(*program);
  for (const char* scores : {"Q", "K"}) {
    for (double& value : inputs.at(scores)) value /= 4;
  }
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto is_wanted = [sketch = sketch](const std::string& text) {
    return absl::StartsWith(text, sketch) && absl::StrContains(text, "skip_masked=1");
  };
  ForDrawnPoints(space, 8, is_wanted, inputs, [&](const Program& lowered, const TensorValues& got) {
    double worst = 0;
    for (size_t e = 0; e < expected.at("Y").size(); ++e) {
      const double error = std::abs(got.at("Y")[e] - expected.at("Y")[e]);
      worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error);
    }
    EXPECT_LT(worst, 4.0 / 256 * 2) << ToString(lowered);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, MaskedAttention,
    testing::Values(Case{"prefix", "b=2,s=96,d=16", "rolling:"},
                    Case{"prefix", "b=2,s=192,d=16", "rolling_warpgroup:"},
                    Case{"prefix", "b=1,s=64,d=16", "chain:"},
                    Case{"of_rows", "b=2,s=96,d=16", "rolling:"},
                    Case{"padded_rows", "b=2,s=96,d=16", "rolling:"},
                    Case{"padded_rows", "b=1,s=192,d=16", "rolling_warpgroup:"},
                    Case{"padded_rows", "b=2,s=64,d=16", "chain:"},
                    Case{"filled", "b=2,s=96,d=16", "rolling:"},
                    Case{"filled", "b=1,s=192,d=16", "rolling_warpgroup:"},
                    Case{"filled_behind", "b=2,s=96,d=16", "rolling:"},
                    Case{"blocks", "b=2,s=96,d=16,w=24", "rolling:"},
                    Case{"blocks", "b=1,s=256,d=16,w=64", "rolling_warpgroup:"},
                    Case{"blocks", "b=1,s=96,d=16,w=20", "rolling:"},
                    Case{"neighbours", "b=1,s=96,d=16,w=16,g=8", "rolling:"},
                    Case{"neighbours", "b=1,s=256,d=16,w=40,g=4", "rolling_warpgroup:"},
                    // Without a softmax, and what reads the result has a kernel of its own.
                    Case{"normalised", "b=2,s=96,h=2,d=16", "parts/rolling_warpgroup+rows["},
                    Case{"normalised", "b=1,s=90,h=3,d=16", "pad_terms/parts/rolling_warpgroup"}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

// The condition stands around a tile's copies and products, and what is computed of a tile that is
// all of use compares nothing.
TEST(MaskedTiles, TilesAreSkippedAndWholeOnesNotCompared) {
  const Target target = *FindTarget("h100");
  const auto space = *SearchSpace::Create(Made("prefix", "b=2,s=256,d=32"), target);
  const auto point = space.Parse(
      "rolling_warpgroup: groups=2 tiles=1 terms=64 pipeline=2 bulk=1 min_blocks=0 skip_masked=1 "
      "last_first=0");
  ASSERT_TRUE(point.ok()) << point.status();
  const auto lowered = space.Lower(*point);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const std::string loops = ToString(*lowered);
  EXPECT_THAT(loops, HasSubstr("if r.0 < i.0@z@x.0 / 2 * 2 + 2 || "
                               "r.0 * 64 < max(min(N[i.0@z@x.0 % 2], 255), 0) + 1"));
  EXPECT_THAT(loops, HasSubstr("if r.0 < i.0@z@x.0 / 2 * 2 || "
                               "r.0 * 64 < max(min(N[i.0@z@x.0 % 2], 255), 0) - 62"));
}

}  // namespace
}  // namespace heddle::search_space::masked_tiles_test
