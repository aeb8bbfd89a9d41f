// Products of 16-bit matrices by matrix instructions: what is generated compiles without spilling,
// and a GPU computes what the definition says, to the bit: sums of small integers are exact.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "measure/codegen/codegen.h"
#include "measure/device/drivers.h"
#include "measure/device/nvrtc.h"
#include "search_space/check/verify.h"
#include "search_space/ir/float_format.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using namespace search_space;

struct Workload {
  const char* op;
  const char* shape;
};
constexpr Workload kWorkloads[] = {
    {"matmul", "m=128,n=192,k=160"},     {"matmul_nt", "m=100,n=64,k=72"},
    {"matmul_tn", "m=256,n=48,k=96"},    {"batch_matmul", "b=3,m=64,n=40,k=64"},
    {"gemm_relu_add", "m=37,n=41,k=27"},
};

std::shared_ptr<const TensorProgram> ProgramOf(const Workload& w, DType type) {
  return std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), w.op)->Instantiate(*ParseShape(w.shape), type));
}

// Random points of the rule.
std::vector<Program> MatrixPoints(const std::shared_ptr<const TensorProgram>& program,
                                  const Target& target, size_t count) {
  const auto space = SearchSpace::Create(program, target);
  EXPECT_TRUE(space.ok()) << space.status();
  std::vector<Program> points;
  Rng rng(11);
  for (int i = 0; i < 1000 && points.size() < count; ++i) {
    const auto point = space->Sample(rng);
    if (!absl::StartsWith(space->Print(*point), "matrix")) continue;
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
    const auto program = ProgramOf(kWorkloads[0], DType::kBFloat16);
    for (const Program& point : MatrixPoints(program, target, 2)) {
      for (const KernelSource& kernel : GenerateSource(point, target, "")) {
        const auto binary = CompileCuda(kernel.source, "candidate.cu", arch);
        ASSERT_TRUE(binary.ok()) << arch << binary.status() << kernel.source;
      }
    }
  }
}

class MatrixGpuTest : public testing::TestWithParam<Workload> {
 protected:
  void SetUp() override {
    const DeviceInfo info = DetectCudaDevices()[0];
    if (!info.usable) GTEST_SKIP() << info.why_not;
    device_ = OpenDevice("cuda:0").value();
  }

  // The bits of the output.
  std::vector<uint16_t> Run(const Program& point,
                            const std::vector<std::vector<uint16_t>>& inputs) {
    const Target& target = device_->info().target;
    std::vector<KernelBinary> binaries;
    for (const KernelSource& kernel : GenerateSource(point, target, "")) {
      const auto binary = CompileCuda(kernel.source, "candidate.cu", target.arch);
      EXPECT_TRUE(binary.ok()) << binary.status() << kernel.source;
      binaries.push_back({kernel.launch, binary->cubin});
    }
    auto loaded = device_->Load(binaries);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    BufferSet set;
    const auto add = [&](const BufferRef& ref) {
      buffers.push_back(*device_->Allocate((ref->bytes() + 3) / 4 * 4));
      set[ref->name] = buffers.back().get();
    };
    for (size_t i = 0; i < point.inputs.size(); ++i) {
      add(point.inputs[i]);
      EXPECT_TRUE(
          device_->Upload(*buffers.back(), inputs[i].data(), point.inputs[i]->bytes()).ok());
    }
    for (const BufferRef& workspace : point.workspaces) add(workspace);
    add(point.outputs[0]);
    EXPECT_TRUE(device_->Run(**loaded, set).ok());
    std::vector<uint16_t> out(static_cast<size_t>(point.outputs[0]->elements));
    EXPECT_TRUE(device_->Download(*buffers.back(), out.data(), point.outputs[0]->bytes()).ok());
    return out;
  }

  std::unique_ptr<Device> device_;
};

TEST_P(MatrixGpuTest, PointsComputeTheProduct) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    const auto program = ProgramOf(GetParam(), type);
    TensorValues expected;
    std::vector<std::vector<uint16_t>> inputs;
    for (const BufferRef& input : program->inputs) {
      inputs.emplace_back();
      for (int64_t i = 0; i < input->elements; ++i) {
        expected[input->name].push_back(static_cast<double>((i * 7 + i / 11) % 9) - 4);
        inputs.back().push_back(HalfBits(type, expected[input->name].back()));
      }
    }
    EvaluateAll(*program, expected);
    for (const Program& point : MatrixPoints(program, device_->info().target, 8)) {
      const std::vector<uint16_t> got = Run(point, inputs);
      const std::vector<double>& want = expected.at(point.outputs[0]->name);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(HalfValue(type, got[i]), want[i]) << NameOf(type) << i << ToString(point);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, MatrixGpuTest, testing::ValuesIn(kWorkloads),
                         [](const auto& info) { return std::string(info.param.op); });

}  // namespace
}  // namespace heddle::measure
