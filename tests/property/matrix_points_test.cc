// Products on units that multiply matrices: whatever random points their rules draw computes the
// definition, run by the interpreter, which knows of every way in which a copy, a product or a
// barrier can be too late.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/products.h"
#include "tests/support.h"

namespace heddle::matrix_points_test {
namespace {

using namespace search_space;

struct Case {
  const char* op;
  const char* shape;
  DType type;
  const char* target;
};

// All layouts of the factors; sums shorter than a pipeline and than a step of a product; rows that
// begin anywhere; each generation of units.
constexpr Case kCases[] = {
    {"matmul", "m=70,n=72,k=40", DType::kBFloat16, "h100"},
    {"matmul", "m=128,n=16,k=128", DType::kFloat16, "h100"},
    {"matmul", "m=33,n=35,k=37", DType::kBFloat16, "h100"},
    {"matmul", "m=9,n=64,k=80", DType::kBFloat16, "h100"},
    {"matmul", "m=64,n=64,k=8", DType::kFloat16, "h100"},
    {"matmul_nt", "m=70,n=64,k=40", DType::kFloat16, "h100"},
    {"matmul_tn", "m=48,n=33,k=96", DType::kBFloat16, "h100"},
    {"matmul_tt", "m=37,n=41,k=27", DType::kFloat16, "h100"},
    {"matmul_tt", "m=64,n=40,k=48", DType::kBFloat16, "h100"},
    {"batch_matmul", "b=3,m=40,n=24,k=32", DType::kFloat16, "h100"},
    {"gemm_relu_add", "m=37,n=41,k=27", DType::kBFloat16, "h100"},
    {"linear_relu", "m=24,n=72,k=64", DType::kBFloat16, "h100"},
    {"conv2d_nhwc", "n=1,ci=16,h=7,w=6,co=8,kh=3,kw=3,stride=2,pad=1", DType::kBFloat16, "h100"},
    {"matmul_nt", "m=33,n=9,k=27", DType::kTF32, "h100"},
    {"matmul_nt", "m=64,n=16,k=64", DType::kTF32, "h100"},
    {"matmul", "m=40,n=24,k=36", DType::kTF32, "h100"},
    {"matmul", "m=70,n=72,k=40", DType::kBFloat16, "sm_80"},
    {"matmul_tn", "m=48,n=33,k=96", DType::kFloat16, "sm_80"},
    {"matmul_nt", "m=33,n=9,k=27", DType::kTF32, "sm_80"},
    {"gemm_relu_add", "m=37,n=41,k=27", DType::kFloat16, "sm_89"},
};
constexpr int kPoints = 500;  // of each, 10,000 in all

void ExpectPointsCompute(const Case& c, int64_t multiprocessors, uint64_t seed, int count) {
  const auto program = InstantiatedFrom(kProducts, c.op, c.shape, c.type);
  Target target = *FindTarget(c.target);
  // So few, every other time, that blocks of even a small product may stay for several tiles.
  // And so little shared memory that what plans know of theirs decides.
  if (multiprocessors > 0) {
    target.sm_count = multiprocessors;
    target.max_shared_bytes_per_block = 40 << 10;
  }
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  Rng rng(seed);
  int seen = 0;
  for (int draw = 0; draw < 20 * count && seen < count; ++draw) {
    const auto point = space->Sample(rng);
    ASSERT_TRUE(point.has_value());
    const std::string text = space->Print(*point);
    if (!IsOnMatrixUnits(text)) continue;
    SCOPED_TRACE(absl::StrCat(c.op, " ", c.shape, " ", NameOf(c.type), " ", c.target, " ", text));
    const auto lowered = space->Lower(*point);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const absl::Status verified = Verify(*lowered, target);
    ASSERT_TRUE(verified.ok()) << verified;
    TensorValues got = inputs;
    const absl::Status ran = Interpret(*lowered, got, {.seed = seed + static_cast<uint64_t>(seen)});
    ASSERT_TRUE(ran.ok()) << ran;
    for (const BufferRef& output : lowered->outputs) {
      ASSERT_EQ(got.at(output->name), expected.at(output->name));
    }
    ++seen;
  }
  EXPECT_EQ(seen, count) << c.op << " " << c.shape;
}

class MatrixPointsTest : public testing::TestWithParam<Case> {};

TEST_P(MatrixPointsTest, ATenthOfTheirPointsComputesTheDefinition) {
  for (const int64_t multiprocessors : {0, 1}) {
    ExpectPointsCompute(GetParam(), multiprocessors, tests::Seed(), kPoints / 20);
  }
}

TEST_P(MatrixPointsTest, LongEveryPointComputesTheDefinition) {
  for (const int64_t multiprocessors : {0, 1}) {
    ExpectPointsCompute(GetParam(), multiprocessors, 1000 + tests::Seed(), kPoints / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Products, MatrixPointsTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           return absl::StrCat(info.param.op, "_", NameOf(info.param.type), "_",
                                               info.param.target, "_", info.index);
                         });

}  // namespace
}  // namespace heddle::matrix_points_test
