// Sampled points of every operator at the shapes people tune compile for two architectures, and
// products on matrix units for those before Hopper.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host.h"
#include "measure/codegen/codegen.h"
#include "measure/device/cuda/nvrtc.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/products.h"
#include "tests/suite_cases.h"
#include "tests/support.h"

namespace heddle {
namespace {

using namespace search_space;

struct Case {
  const char* op;
  const char* shape;
};
constexpr Case kCases[] = {
    {"vector_add", "n=16777216"},
    {"window_sum", "n=1048576"},
    {"transpose", "m=2048,n=2048"},
    {"matmul", "m=1024,n=1024,k=1024"},
    {"matmul_nt", "m=1023,n=1025,k=1027"},
    {"matmul_tn", "m=128,n=768,k=3072"},
    {"batch_matmul", "b=8,m=256,n=256,k=64"},
    {"gemm_relu_add", "m=1000,n=1000,k=1000"},
    {"conv2d", "n=1,ci=64,h=56,w=56,co=64,kh=3,kw=3,stride=1,pad=1"},
    {"conv2d_bias_relu", "n=1,ci=3,h=224,w=224,co=64,kh=7,kw=7,stride=2,pad=3"},
    {"conv2d_nhwc", "n=1,ci=64,h=28,w=28,co=64,kh=3,kw=3,stride=1,pad=1"},
    {"depthwise_conv2d", "n=1,c=144,h=56,w=56,kh=3,kw=3,stride=1,pad=1"},
    {"softmax", "m=512,n=1024"},
    {"layer_norm", "m=512,n=1024"},
};
constexpr int kPoints = 50;  // an operator

enum class On : uint8_t {
  kBoth,       // every point for both architectures
  kAlternate,  // every second point for either
};

// Inputs that hold indices, of bench/suites/gather.op.
constexpr Case kGatherCases[] = {
    {"embedding", "n=4096,v=50000,d=256"},
    {"gathered_matmul", "m=1000,n=512,k=256,v=3000"},
    {"cross_entropy", "m=512,n=1000"},
    {"paged_scores", "b=8,h=4,s=512,d=64,p=16,pages=1000"},
};
constexpr int kGatherPoints = 5;
// Rows along an axis that is not the innermost one, of bench/suites/unseen.op.
constexpr Case kStridedCases[] = {
    {"layer_norm_channels", "n=16,c=192,h=56,w=56"},
    {"layer_norm_channels", "n=3,c=96,h=14,w=14"},
    {"softmax_channels", "n=3,c=133,h=7,w=9"},
};

class CompileTest : public testing::TestWithParam<Case> {};

struct Job {
  std::string source, arch, point;
};

void ExpectCompiles(const std::vector<Job>& jobs) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::vector<std::string> failures;
  std::vector<std::thread> threads;
  for (int t = 0; t < UsableCores(); ++t) {
    threads.emplace_back([&] {
      for (size_t j = next++; j < jobs.size(); j = next++) {
        const auto binary = measure::CompileCuda(jobs[j].source, "candidate.cu", jobs[j].arch);
        const std::lock_guard lock(mutex);
        if (!binary.ok()) {
          failures.push_back(absl::StrCat(jobs[j].point, " on ", jobs[j].arch, "\n",
                                          std::string(binary.status().message()), jobs[j].source));
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(failures.empty()) << failures.size() << " of " << jobs.size()
                                << " kernels do not compile, the first:\n"
                                << failures[0];
}

// `points` points of the operator at the shape.
void ExpectPointsCompile(const std::vector<Operator>& operators, const Case& c, DType dtype,
                         int points, On on) {
  const auto program = std::make_shared<const TensorProgram>(
      *FindOperator(operators, c.op)->Instantiate(*ParseShape(c.shape), dtype));
  // The same points for both, so that the narrower limits of the two apply.
  const Target a100 = *FindTarget("sm_80");
  const auto space = SearchSpace::Create(program, a100);
  ASSERT_TRUE(space.ok()) << space.status();
  std::vector<Job> jobs;
  Rng rng(7 + tests::Seed());
  for (int i = 0; i < points; ++i) {
    const std::optional<Point> point = i == 0 ? space->Default() : space->Sample(rng);
    ASSERT_TRUE(point.has_value());
    SCOPED_TRACE(space->Print(*point));
    const auto steps = space->Steps(*point);
    ASSERT_TRUE(steps.ok()) << steps.status();
    const auto lowered = LowerSteps(program, *steps);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const absl::Status verified = Verify(*lowered, a100);
    ASSERT_TRUE(verified.ok()) << verified << ToString(*lowered);
    for (const char* arch : {"sm_80", "sm_90"}) {
      const bool is_turn = (i % 2 == 0) == (arch == std::string("sm_90"));
      if (on == On::kAlternate && !is_turn) continue;
      for (const auto& kernel : measure::GenerateSource(*lowered, *FindTarget(arch), "")) {
        jobs.push_back({kernel.source, arch, space->Print(*point)});
      }
    }
  }
  ExpectCompiles(jobs);
}

TEST_P(CompileTest, SampledPointsCompile) {
  const absl::StatusOr<measure::NvrtcInfo> nvrtc = measure::FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  ExpectPointsCompile(BuiltinOperators(), GetParam(), DType::kFloat32, kPoints / 2, On::kAlternate);
}

TEST_P(CompileTest, LongSampledPointsCompile) {
  const absl::StatusOr<measure::NvrtcInfo> nvrtc = measure::FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  ExpectPointsCompile(BuiltinOperators(), GetParam(), DType::kFloat32, kPoints, On::kBoth);
}

TEST(GatherCompileTest, SampledPointsCompile) {
  const absl::StatusOr<measure::NvrtcInfo> nvrtc = measure::FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  const std::vector<Operator> operators = tests::OperatorsOfSuite("gather.op");
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const Case& c : kGatherCases)
      ExpectPointsCompile(operators, c, dtype, kGatherPoints, On::kBoth);
  }
}

TEST(StridedRowsCompileTest, SampledPointsCompile) {
  const absl::StatusOr<measure::NvrtcInfo> nvrtc = measure::FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  const std::vector<Operator> operators = tests::OperatorsOfSuite("unseen.op");
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Case& c : kStridedCases)
      ExpectPointsCompile(operators, c, dtype, kGatherPoints, On::kAlternate);
  }
}

// Products on the matrix units of devices before Hopper: mma.sync behind rings of asynchronous
// copies. No such device is needed to see that ptxas takes them. A single row is no work for them.
struct Product {
  const char* op;
  const char* shape;
  DType type;
};
constexpr Product kProductCases[] = {
    {"matmul", "m=1024,n=1024,k=1024", DType::kBFloat16},
    {"matmul_nt", "m=4096,n=4096,k=4096", DType::kFloat16},
    {"matmul_tn", "m=768,n=3072,k=512", DType::kBFloat16},
    {"matmul_tt", "m=512,n=640,k=1024", DType::kFloat16},
    {"batch_matmul", "b=64,m=512,n=512,k=64", DType::kBFloat16},
    {"gemm_relu_add", "m=2048,n=2048,k=2048", DType::kBFloat16},
    {"linear_relu", "m=1024,n=1024,k=512", DType::kFloat16},
    {"linear_gelu", "m=4096,n=11008,k=4096", DType::kBFloat16},
    {"scaled_residual", "m=1000,n=520,k=264", DType::kFloat16},
    {"matmul_nt", "m=2,n=4096,k=4096", DType::kBFloat16},
    {"matmul", "m=16,n=4096,k=4096", DType::kBFloat16},
    {"matmul_nt", "m=64,n=14336,k=4096", DType::kFloat16},
    {"matmul", "m=64,n=64,k=65536", DType::kBFloat16},
    {"matmul", "m=1023,n=1025,k=1027", DType::kBFloat16},
    {"matmul_nt", "m=1000,n=1000,k=1000", DType::kFloat16},
    {"matmul_tn", "m=37,n=41,k=27", DType::kFloat16},
    {"matmul_nt", "m=4096,n=4096,k=4096", DType::kTF32},
    {"matmul", "m=1000,n=1000,k=1000", DType::kTF32},
    {"matmul_tt", "m=1023,n=1025,k=1027", DType::kTF32},
    {"conv2d_nhwc", "n=16,ci=64,h=28,w=28,co=64,kh=3,kw=3,stride=1,pad=1", DType::kBFloat16},
};
constexpr int kProductPoints = 10;  // of each, for either architecture

void ExpectProductsCompile(const Product& c, int points) {
  const absl::StatusOr<measure::NvrtcInfo> nvrtc = measure::FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  const auto program = InstantiatedFrom(kProducts, c.op, c.shape, c.type);
  std::vector<Job> jobs;
  for (const char* arch : {"sm_80", "sm_89"}) {
    const Target target = *FindTarget(arch);
    const auto space = SearchSpace::Create(program, target);
    ASSERT_TRUE(space.ok()) << space.status();
    Rng rng(tests::Seed());
    int seen = 0;
    for (int draw = 0; draw < 20 * points + 100 && seen < points; ++draw) {
      const auto point = space->Sample(rng);
      ASSERT_TRUE(point.has_value());
      const std::string text = space->Print(*point);
      if (!IsOnMatrixUnits(text)) continue;
      SCOPED_TRACE(text);
      ++seen;
      const auto lowered = space->Lower(*point);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const absl::Status verified = Verify(*lowered, target);
      ASSERT_TRUE(verified.ok()) << verified;
      bool multiplies = false;
      for (const auto& kernel : measure::GenerateSource(*lowered, target, "")) {
        multiplies = multiplies || absl::StrContains(kernel.source, "mma.sync");
        jobs.push_back({kernel.source, arch + kernel.arch_suffix, text});
      }
      EXPECT_TRUE(multiplies);
    }
    EXPECT_EQ(seen, points) << arch;
  }
  ExpectCompiles(jobs);
}

class ProductCompileTest : public testing::TestWithParam<Product> {};

TEST_P(ProductCompileTest, ATenthOfTheirPointsCompiles) {
  ExpectProductsCompile(GetParam(), kProductPoints / 10);
}

TEST_P(ProductCompileTest, LongEveryPointCompiles) {
  ExpectProductsCompile(GetParam(), kProductPoints);
}

// Of bfloat16 programs of a suite, points of the sketches whose names begin with `like`, and, where
// there are warpgroups' instructions, with `like_of_warpgroups`.
void ExpectPointsCompile(const char* suite, std::initializer_list<Case> cases, const char* like,
                         const char* like_of_warpgroups) {
  static constexpr int kDraws = 200, kPoints = 2;
  const absl::StatusOr<measure::NvrtcInfo> nvrtc = measure::FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  const std::vector<Operator> operators = tests::OperatorsOfSuite(suite);
  std::vector<Job> jobs;
  for (const Case& c : cases) {
    const auto program = std::make_shared<const TensorProgram>(
        *FindOperator(operators, c.op)->Instantiate(*ParseShape(c.shape), DType::kBFloat16));
    for (const auto& [arch, wanted] :
         {std::pair("sm_80", like), std::pair("sm_90", like_of_warpgroups)}) {
      const Target target = *FindTarget(arch);
      const auto space = SearchSpace::Create(program, target);
      ASSERT_TRUE(space.ok()) << space.status();
      Rng rng(tests::Seed());
      int seen = 0;
      for (int draw = 0; draw < kDraws && seen < kPoints; ++draw) {
        const Point point = *space->Sample(rng);
        const std::string text = space->Print(point);
        if (!absl::StartsWith(text, wanted)) continue;
        ++seen;
        const auto lowered = space->Lower(point);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        const absl::Status verified = Verify(*lowered, target);
        ASSERT_TRUE(verified.ok()) << verified;
        for (const auto& kernel : measure::GenerateSource(*lowered, target, "")) {
          jobs.push_back({kernel.source, arch + kernel.arch_suffix, text});
        }
      }
      EXPECT_EQ(seen, kPoints) << c.op << " on " << arch;
    }
  }
  ExpectCompiles(jobs);
}

// Attention on matrix units, with what is taken along (rolling_update).
TEST(AttentionCompileTest, RollingPointsCompile) {
  ExpectPointsCompile("attention.op",
                      {{"attention", "b=96,s=512,t=512,d=64"},
                       {"causal_attention", "b=1,s=1056,d=128"},
                       {"gqa_causal_attention", "h=8,g=4,s=2048,d=80"}},
                      "rolling:", "rolling_warpgroup:");
}

// Products of float32 stages in two parts (split_operand).
TEST(PartsCompileTest, PointsCompile) {
  ExpectPointsCompile(
      "unlisted.op",
      {{"mlp_residual", "m=2048,d=512,h=2048"}, {"linear_attention", "b=32,t=2048,d=64,e=64"}},
      "split_operand/", "split_operand/");
  ExpectPointsCompile("operators.op", {{"causal_attention", "b=16,s=1024,d=64"}},
                      "split_operand/rolling:", "split_operand/rolling:");
}

INSTANTIATE_TEST_SUITE_P(Products, ProductCompileTest, testing::ValuesIn(kProductCases),
                         [](const testing::TestParamInfo<Product>& info) {
                           return absl::StrCat(info.param.op, "_", NameOf(info.param.type), "_",
                                               info.index);
                         });

INSTANTIATE_TEST_SUITE_P(Operators, CompileTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.op);
                         });

}  // namespace
}  // namespace heddle
