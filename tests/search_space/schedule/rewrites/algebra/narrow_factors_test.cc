// Products of whole numbers in 16 bits: of which factors that is known, what a program becomes, and
// which sums are refused.
#include "search_space/schedule/rewrites/algebra/narrow_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/tiling/tiled_kernel.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::narrow_factors_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kOperators = R"(
op codes(m, n, k) {
  in X[m, k]: index(256), W[n, k]: index(256), S[m], T[n]
  C[i: m, j: n] = sum(r: k) (X[i, r] - 128) * (W[j, r] - 128)
  out Y[i: m, j: n] = C[i, j] * S[i] * T[j]
}
op weights(m, n, k) {
  in X[m, k], W[n, k]: index(256)
  out Y[i: m, j: n] = sum(r: k) X[i, r] * (W[j, r] - 128)
}
op long_codes(m, n, k, v) {
  in X[m, k]: index(v), W[n, k]: index(v)
  out Y[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
}
op linkage(n, m) {
  in G[n, m]: index(3)
  C[a: m, b: m] = sum(i: n) G[i, a] * G[i, b]
  out Y[a: m, b: m] = C[a, b] * 2
}
op segments(m, n, k) {
  in I[m]: index(n), X[m, k]
  out Y[i: n, j: k] = sum(r: m) select(I[r] == i, X[r, j], 0)
}
op triangle(n, k) {
  in X[n, k]
  out Y[i: n, j: k] = sum(r: n) select(r <= i, X[r, j], 0)
}
op halves(m, n, k) {
  in X[m, k]: index(256), W[n, k]: index(256)
  out Y[i: m, j: n] = sum(r: k) (0.5 * X[i, r]) * W[j, r]
}
op squares(m, k) {
  in X[m, k]: index(256)
  out Y[i: m] = sum(r: k) X[i, r] * X[i, r]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kFloat32) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

absl::StatusOr<DType> TypeOf(const std::string& op, const std::string& shape,
                             DType type = DType::kFloat32) {
  const auto program = Made(op, shape, type);
  return TypeOfWholeFactors(*program, program->stages[0]);
}

TEST(NarrowFactors, AreOfATypeThatHasTheirValues) {
  EXPECT_EQ(*TypeOf("codes", "m=3,n=4,k=64"), DType::kFloat16);
  EXPECT_EQ(*TypeOf("long_codes", "m=3,n=4,k=3,v=2049"), DType::kFloat16);
  // That of the other factor.
  EXPECT_EQ(*TypeOf("weights", "m=3,n=4,k=64", DType::kBFloat16), DType::kBFloat16);
  EXPECT_EQ(*TypeOf("weights", "m=3,n=4,k=64", DType::kFloat16), DType::kFloat16);
  EXPECT_EQ(*TypeOf("segments", "m=64,n=4,k=8", DType::kBFloat16), DType::kBFloat16);
}

TEST(NarrowFactors, OthersAreRefused) {
  const auto why = [](const std::string& op, const std::string& shape) {
    return std::string(TypeOf(op, shape).status().message());
  };
  EXPECT_THAT(why("long_codes", "m=3,n=4,k=3,v=2050"), HasSubstr("no numbers of one type"));
  EXPECT_THAT(why("weights", "m=3,n=4,k=64"), HasSubstr("no numbers of one type"));
  EXPECT_THAT(why("halves", "m=3,n=4,k=64"), HasSubstr("no numbers of one type"));
  EXPECT_THAT(why("squares", "m=3,k=64"), HasSubstr("no product of matrices"));
  EXPECT_THAT(why("segments", "m=64,n=4,k=8"), HasSubstr("no numbers of one type"));
  EXPECT_FALSE(TypeOf("triangle", "n=64,k=8", DType::kBFloat16).ok());
  // 128 * 128 * 1024 is 2^24.
  EXPECT_TRUE(TypeOf("codes", "m=3,n=4,k=1024").ok());
  EXPECT_THAT(why("codes", "m=3,n=4,k=1025"), HasSubstr("more than 2^24"));
  // Whoever computes in 16 bits has such sums anyway.
  EXPECT_TRUE(TypeOf("codes", "m=3,n=4,k=1025", DType::kBFloat16).ok());
}

TEST(NarrowFactors, ComputeTheSame) {
  for (const auto& [op, shape] : {std::pair("codes", "m=5,n=4,k=24"), {"linkage", "n=41,m=5"}}) {
    SCOPED_TRACE(op);
    const auto program = Made(op, shape);
    const auto narrowed = WithNarrowFactors(*program, program->stages[0].name());
    ASSERT_TRUE(narrowed.ok()) << narrowed.status();
    TensorValues expected = IntegerInputs(*program), got = expected;
    EvaluateAll(*program, expected);
    EvaluateAll(**narrowed, got);
    EXPECT_EQ(got.at("Y"), expected.at("Y"));
  }
}

// A time that units for matrices need is no wrong clock's.
TEST(NarrowFactors, ArePartOfTheDevicesPeak) {
  const Target target = *FindTarget("h100");
  EXPECT_EQ(PeakGflops(*Made("codes", "m=3,n=4,k=64"), target), MatrixGflops(target));
  EXPECT_EQ(PeakGflops(*Made("halves", "m=3,n=4,k=64"), target), target.peak_gflops);
}

// Where no unit for matrices takes them, as of sums of more than 2^24, tiles have several elements
// along both axes, neither of which is a batch's.
TEST(NarrowFactors, OthersAreProductsOfTiles) {
  const ProgramShape shape = FindKernels(Made("codes", "m=512,n=4096,k=4096"), {});
  const auto kernel = FindTiledKernel(shape, shape.kernels.at(0), *FindTarget("h100"));
  ASSERT_TRUE(kernel.has_value());
  EXPECT_TRUE(kernel->reuses);
  for (const TiledAxis& axis : kernel->axes) EXPECT_FALSE(axis.is_batch) << axis.name;
}

// Indicators are computed where tiles are, others may be stored in 16 bits first.
TEST(NarrowFactors, MayBeStored) {
  const auto sketches_of = [](const std::string& op, const std::string& shape) {
    const auto space = *SearchSpace::Create(Made(op, shape, DType::kBFloat16), *FindTarget("h100"));
    std::string all;
    Rng rng(1);
    for (int draw = 0; draw < 100; ++draw) all += space.Print(*space.Sample(rng)) + "\n";
    return all;
  };
  EXPECT_THAT(sketches_of("codes", "m=2048,n=2048,k=2048"), HasSubstr("narrow+pack/"));
  const std::string segments = sketches_of("segments", "m=16384,n=128,k=256");
  EXPECT_THAT(segments, HasSubstr("narrow/warpgroup:"));
  EXPECT_THAT(segments, Not(HasSubstr("[I")));
}

struct Case {
  const char *op, *shape, *device, *sketch;
  DType type = DType::kFloat32;
};

class NarrowProducts : public testing::TestWithParam<Case> {};

TEST_P(NarrowProducts, ComputeTheDefinition) {
  const auto& [op, shape, device, sketch, type] = GetParam();
  ExpectPointsCompute(Made(op, shape, type), *FindTarget(device), absl::StrCat(" ", sketch));
}

INSTANTIATE_TEST_SUITE_P(
    All, NarrowProducts,
    testing::Values(
        Case{"codes", "m=40,n=33,k=48", "a100", "narrow/matrix:"},
        Case{"codes", "m=40,n=33,k=48", "h100", "narrow/warpgroup:"},
        Case{"weights", "m=24,n=40,k=64", "h100", "narrow/warpgroup:", DType::kBFloat16},
        Case{"weights", "m=24,n=40,k=43", "h100", "narrow/warpgroup:", DType::kBFloat16},
        Case{"segments", "m=90,n=24,k=40", "a100", "narrow/matrix:", DType::kBFloat16},
        Case{"segments", "m=90,n=24,k=40", "h100", "narrow/warpgroup:", DType::kBFloat16},
        Case{"linkage", "n=41,m=40", "a100", "narrow/matrix:"},
        Case{"linkage", "n=41,m=40", "h100", "narrow/warpgroup:"}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

}  // namespace
}  // namespace heddle::search_space::narrow_factors_test
