// tf32 in generated source: CUDA compiles its matrix instructions, and what OpenCL, which has none,
// runs is right.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "measure/codegen/codegen.h"
#include "measure/device/backend.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/drivers.h"
#include "measure/judge/validate.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/support.h"

namespace heddle::measure::tf32_test {
namespace {

using namespace search_space;

std::shared_ptr<const TensorProgram> ProgramOf(const Operator& op, const std::string& shape) {
  return std::make_shared<const TensorProgram>(*op.Instantiate(*ParseShape(shape), DType::kTF32));
}

std::shared_ptr<const TensorProgram> Builtin(const std::string& op, const std::string& shape) {
  return ProgramOf(*FindOperator(BuiltinOperators(), op), shape);
}

// Compiles points of one sketch; the source of the last.
std::string CompiledPoints(const std::string& op, const std::string& sketch, const char* arch) {
  const Target target = *FindTarget(arch);
  const auto space = SearchSpace::Create(Builtin(op, "m=1024,n=1000,k=512"), target);
  std::string last;
  Rng rng(11);
  for (int seen = 0, i = 0; i < 400 && seen < 4; ++i) {
    const auto point = space->Sample(rng);
    if (!absl::StartsWith(space->Print(*point), sketch)) continue;
    ++seen;
    last.clear();
    for (const KernelSource& kernel : GenerateSource(*space->Lower(*point), target, "")) {
      const auto binary = CompileCuda(kernel.source, "tf32.cu", arch + kernel.arch_suffix);
      EXPECT_TRUE(binary.ok()) << arch << binary.status() << kernel.source;
      last += kernel.source;
    }
  }
  EXPECT_NE(last, "") << "no point of " << sketch;
  return last;
}

TEST(TF32, CudaCompiles) {
  const absl::StatusOr<NvrtcInfo> nvrtc = FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  for (const char* arch : {"sm_80", "sm_89", "sm_90"}) {
    const std::string rows = CompiledPoints("matmul_nt", "matrix", arch);
    EXPECT_TRUE(absl::StrContains(rows, "mma.sync.aligned.m16n8k8.row.col.f32.tf32"));
    EXPECT_TRUE(absl::StrContains(rows, "cvt.rna.tf32")) << "operands are rounded";
    const std::string columns = CompiledPoints("matmul", "matrix", arch);
    EXPECT_TRUE(absl::StrContains(columns, "to_tf32("));
  }
  const std::string in_shared = CompiledPoints("matmul_nt", "warpgroup", "sm_90");
  EXPECT_TRUE(absl::StrContains(in_shared, "k8.f32.tf32.tf32"));
  CompiledPoints("matmul", "tile", "sm_75");
}

// Elements of 32 bits that bulk copies bring are rounded by them.
TEST(TF32, BulkCopiesHaveMapsOfFourBytes) {
  const auto space =
      SearchSpace::Create(Builtin("matmul_nt", "m=64,n=128,k=192"), *FindTarget("h100"));
  const auto point = space->Parse(
      "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=64 k.steps=4 split_k=1 pipeline=3 "
      "in_flight=1 block_swizzle=1 min_blocks=0 bulk=1");
  ASSERT_TRUE(point.ok()) << point.status();
  const auto kernels = GenerateSource(*space->Lower(*point), *FindTarget("h100"), "");
  ASSERT_EQ(kernels.size(), 1);
  ASSERT_EQ(kernels[0].launch.maps.size(), 2);
  for (const TensorMap& map : kernels[0].launch.maps) {
    EXPECT_EQ(map.element_bytes, 4);
    EXPECT_EQ(map.swizzle_bytes, 128);
    EXPECT_EQ(map.box.back(), 32);
    EXPECT_EQ(map.strides, std::vector<int64_t>{192 * 4});
  }
}

class TF32OnOpenCl : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenDevice("opencl:0");
    HEDDLE_NEEDS("pocl", opened.ok(), std::string(opened.status().message()));
    device_ = *std::move(opened);
  }

  std::unique_ptr<LoadedProgram> Loaded(const Program& point, const std::string& find = "",
                                        const std::string& replacement = "") {
    std::vector<KernelBinary> binaries;
    for (KernelSource& kernel : GenerateSource(point, device_->info().target, "")) {
      const size_t at = kernel.source.find(find);
      EXPECT_NE(at, std::string::npos) << kernel.source;
      kernel.source.replace(at, find.size(), replacement);
      binaries.push_back({kernel.launch, CompileOpenCl("opencl:0", kernel).value()});
    }
    return device_->Load(binaries).value();
  }

  std::unique_ptr<Device> device_;
};

TEST_F(TF32OnOpenCl, RoundsAsTheHostDoes) {
  const auto program = ProgramOf(
      ParseOperators("op round(n) { in A[n]: float32  out B[i: n] = tf32(A[i]) }")->front(),
      "n=65536");
  std::vector<float> numbers, got(65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    // Around ties, of all exponents and both signs.
    const uint32_t bits = (i << 16) | ((i * 7 % 8) << 13) | (0x0ffe + i % 4);
    float& number = numbers.emplace_back();
    std::memcpy(&number, &bits, sizeof(bits));
  }
  const Program point = *LowerSteps(program, NaiveSteps(*program));
  const auto loaded = Loaded(point);
  auto a = device_->Allocate(65536 * 4).value(), b = device_->Allocate(65536 * 4).value();
  ASSERT_TRUE(device_->Upload(*a, numbers.data(), 65536 * 4).ok());
  ASSERT_TRUE(device_->Run(*loaded, {{"A", a.get()}, {"B", b.get()}}).ok());
  ASSERT_TRUE(device_->Download(*b, got.data(), 65536 * 4).ok());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(numbers[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else if (std::fpclassify(numbers[i]) != FP_SUBNORMAL) {
      ASSERT_EQ(got[i], RoundTo(DType::kTF32, numbers[i])) << i;
    }
  }
}

TEST_F(TF32OnOpenCl, TheValidatorSeesALostTermAndRightPointsPass) {
  for (const char* op : {"matmul", "matmul_nt", "gemm_relu_add"}) {
    SCOPED_TRACE(op);
    const auto program = Builtin(op, "m=9,n=17,k=512");
    auto validator = Validator::Create(*device_, *program, {}).value();
    const Program naive = *LowerSteps(program, NaiveSteps(*program));
    const auto validate = [&](const Program& point, LoadedProgram& loaded) {
      auto workspaces = validator->AllocateWorkspaces(point.workspaces);
      return validator->Validate(loaded, *workspaces, /*rounded_anew=*/{});
    };
    auto workspaces = validator->AllocateWorkspaces(naive.workspaces);
    ASSERT_TRUE(validator->SetReference(*Loaded(naive), *workspaces).ok());
    const Verdict lost = validate(naive, *Loaded(naive, "< 512", "< 511"));
    EXPECT_EQ(lost.outcome, Outcome::kWrongAnswer) << lost.detail;
    const auto space = SearchSpace::Create(program, device_->info().target);
    Rng rng(3);
    for (int i = 0; i < 3; ++i) {
      const Program point = *space->Lower(i == 0 ? space->Default() : *space->Sample(rng));
      const Verdict verdict = validate(point, *Loaded(point));
      EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.detail << ToString(point);
    }
  }
}

// What is rounded between two sums.
TEST_F(TF32OnOpenCl, RoundedFactorsPass) {
  const auto program = ProgramOf(ParseOperators(R"(op layers(m, n, k) {
    in X[m, k], W[k, n], V[n, k]
    T[i: m, j: n]: tf32 = sum(r: k) X[i, r] * W[r, j]
    out Y[i: m, q: k]: tf32 = sum(r: n) T[i, r] * V[r, q]
  })")
                                     ->front(),
                                 "m=7,n=33,k=64");
  EXPECT_EQ(program->stages.back().tensor->dtype, DType::kTF32);
  auto validator = Validator::Create(*device_, *program, {}).value();
  const Program naive = *LowerSteps(program, NaiveSteps(*program));
  auto workspaces = validator->AllocateWorkspaces(naive.workspaces);
  const absl::Status set = validator->SetReference(*Loaded(naive), *workspaces);
  ASSERT_TRUE(set.ok()) << set;
  const auto space = SearchSpace::Create(program, device_->info().target);
  const Program point = *space->Lower(space->Default());
  auto own = validator->AllocateWorkspaces(point.workspaces);
  const Verdict verdict = validator->Validate(*Loaded(point), *own, /*rounded_anew=*/{});
  EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.detail;
}

}  // namespace
}  // namespace heddle::measure::tf32_test
