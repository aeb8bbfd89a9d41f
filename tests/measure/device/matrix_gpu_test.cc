// Products of 16-bit matrices by matrix instructions: what is generated compiles without spilling,
// and a GPU computes what the definition says, to the bit: sums of small integers are exact.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "measure/codegen/codegen.h"
#include "measure/device/backend.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/drivers.h"
#include "search_space/check/verify.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/lower/lower.h"
#include "search_space/sketch/search_space.h"
#include "tests/measure/half_programs.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using namespace search_space;

constexpr tests::HalfWorkload kWorkloads[] = {
    {"matmul", "m=128,n=192,k=160"},     {"matmul_nt", "m=100,n=64,k=72"},
    {"matmul_tn", "m=256,n=48,k=96"},    {"batch_matmul", "b=3,m=64,n=40,k=64"},
    {"gemm_relu_add", "m=37,n=41,k=27"},
};

// Other ways to them; the points hold the text.
struct Way {
  const char* name;
  tests::HalfWorkload workload;
  const char* like;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
constexpr Way kWays[] = {
    {"flatten", {"conv2d_nhwc", "n=3,ci=32,h=9,w=7,co=24,kh=3,kw=3,pad=1"}, " flatten/"},
    {"flatten_strided", {"conv2d_nhwc", "n=2,ci=16,h=9,w=8,co=16,kh=3,kw=3,stride=2"}, " flatten/"},
    {"flatten_packed",
     {"conv2d_bias_relu", "n=2,ci=24,h=9,w=11,co=17,kh=3,kw=3,pad=1"},
     " flatten+pack/"},
    {"packed", {"matmul", "m=137,n=141,k=143"}, " pack/"},
    {"staged", {"matmul", "m=256,n=192,k=160"}, "staged=1"},
    {"bulk", {"matmul_nt", "m=256,n=192,k=160"}, "bulk=1"},
};

// Random points whose text, behind a space, holds `like`.
std::vector<Program> MatrixPoints(const std::shared_ptr<const TensorProgram>& program,
                                  const Target& target, const char* like, size_t count) {
  const auto space = SearchSpace::Create(program, target);
  EXPECT_TRUE(space.ok()) << space.status();
  std::vector<Program> points;
  Rng rng(11);
  for (int i = 0; i < 1000 && points.size() < count; ++i) {
    const auto point = space->Sample(rng);
    if (!absl::StrContains(absl::StrCat(" ", space->Print(*point)), like)) continue;
    points.push_back(*space->Lower(*point));
    const absl::Status verified = Verify(points.back(), target);
    EXPECT_TRUE(verified.ok()) << verified;
  }
  EXPECT_EQ(points.size(), count);
  return points;
}

TEST(MatrixKernels, CompileForEveryArchitectureThatHasThem) {
  const absl::StatusOr<NvrtcInfo> nvrtc = FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  for (const char* arch : {"sm_80", "sm_89", "sm_90"}) {
    const Target target = *FindTarget(arch);
    const auto program = kWorkloads[0].Program(DType::kBFloat16);
    for (const Program& point : MatrixPoints(program, target, " matrix", 2)) {
      for (const KernelSource& kernel : GenerateSource(point, target, "")) {
        EXPECT_EQ(kernel.arch_suffix, "");
        const auto binary = CompileCuda(kernel.source, "candidate.cu", arch);
        ASSERT_TRUE(binary.ok()) << arch << binary.status() << kernel.source;
      }
    }
  }
}

// Products that the compiler makes wait for one another are right but slow.
TEST(MatrixKernels, OfWarpgroupsCompileAndGoOnInBackground) {
  const absl::StatusOr<NvrtcInfo> nvrtc = FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  const Target target = *FindTarget("sm_90");
  for (const tests::HalfWorkload& workload : kWorkloads) {
    const auto program = workload.Program(DType::kBFloat16);
    for (const Program& point : MatrixPoints(program, target, " warpgroup", 2)) {
      for (const KernelSource& kernel : GenerateSource(point, target, "")) {
        const auto binary =
            CompileCuda(kernel.source, "candidate.cu", target.arch + kernel.arch_suffix);
        ASSERT_TRUE(binary.ok()) << binary.status() << kernel.source;
        EXPECT_FALSE(binary->resources.serialized) << binary->log << kernel.source;
        EXPECT_EQ(binary->resources.spill_bytes, 0) << binary->log << ToString(point);
      }
    }
  }
}

class MatrixGpu {
 public:
  // Why there is none; "" = there is one.
  std::string Open() {
    const DeviceInfo info = DetectCudaDevices()[0];
    if (info.usable) device_ = OpenDevice("cuda:0").value();
    return info.why_not;
  }

  // Slow enough for small products to be worth a copy.
  Target SlowTarget() const {
    Target target = device_->info().target;
    target.peak_gflops = 1;
    return target;
  }
  Target target() const { return device_->info().target; }

  void ExpectComputes(const tests::HalfWorkload& workload, const Target& target,
                      const std::vector<const char*>& ways) {
    for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
      const auto program = workload.Program(type);
      TensorValues expected;
      const tests::HalfTensors inputs = tests::IntegersInto(*program, expected);
      for (const char* like : ways) {
        for (const Program& point : MatrixPoints(program, target, like, 8)) {
          const std::vector<uint16_t> got = Run(point, inputs);
          const std::vector<double>& want = expected.at(point.outputs[0]->name);
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(HalfValue(type, got[i]), want[i]) << NameOf(type) << i << ToString(point);
          }
        }
      }
    }
  }

 private:
  std::vector<uint16_t> Run(const Program& point, const tests::HalfTensors& inputs) {
    return tests::RunOnce(*device_, point, inputs, [&](const KernelSource& kernel) {
      const auto binary = CompileCuda(kernel.source, "candidate.cu",
                                      device_->info().target.arch + kernel.arch_suffix);
      EXPECT_TRUE(binary.ok()) << binary.status() << kernel.source;
      return binary->cubin;
    });
  }

  std::unique_ptr<Device> device_;
};

class MatrixGpuTest : public testing::TestWithParam<tests::HalfWorkload> {};

TEST_P(MatrixGpuTest, PointsComputeTheProduct) {
  MatrixGpu gpu;
  if (const std::string why_not = gpu.Open(); !why_not.empty()) GTEST_SKIP() << why_not;
  gpu.ExpectComputes(GetParam(), gpu.target(), {" matrix", " warpgroup"});
}

class MatrixWaysGpuTest : public testing::TestWithParam<Way> {};

TEST_P(MatrixWaysGpuTest, PointsComputeTheProduct) {
  MatrixGpu gpu;
  if (const std::string why_not = gpu.Open(); !why_not.empty()) GTEST_SKIP() << why_not;
  gpu.ExpectComputes(GetParam().workload, gpu.SlowTarget(), {GetParam().like});
}

INSTANTIATE_TEST_SUITE_P(Operators, MatrixGpuTest, testing::ValuesIn(kWorkloads),
                         [](const auto& info) { return std::string(info.param.op); });
INSTANTIATE_TEST_SUITE_P(Operators, MatrixWaysGpuTest, testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::measure
