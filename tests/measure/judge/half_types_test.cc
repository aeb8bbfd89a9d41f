// 16-bit types in generated source: CUDA compiles it, and what OpenCL runs is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "measure/codegen/codegen.h"
#include "measure/device/backend.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/drivers.h"
#include "measure/judge/criteria.h"
#include "measure/judge/validate.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/samples.h"
#include "search_space/sketch/search_space.h"
#include "tests/measure/half_programs.h"
#include "tests/support.h"

namespace heddle::measure::half_types_test {
namespace {

using namespace search_space;

constexpr DType kHalves[] = {DType::kFloat16, DType::kBFloat16};

constexpr tests::HalfWorkload kWorkloads[] = {
    {"vector_add", "n=1024"},
    {"transpose", "m=64,n=96"},
    {"matmul", "m=48,n=64,k=40"},
    {"matmul_nt", "m=33,n=35,k=37"},
    {"conv2d", "n=1,ci=4,h=8,w=8,co=8,kh=3,kw=3,stride=1,pad=1"},
    {"depthwise_conv2d", "n=1,c=3,h=8,w=16,kh=3,kw=3,stride=1,pad=1"},
    {"softmax", "m=4,n=256"},
};

// The default point and random ones.
std::vector<Program> Points(const std::shared_ptr<const TensorProgram>& program,
                            const Target& target, int count) {
  const auto space = SearchSpace::Create(program, target);
  EXPECT_TRUE(space.ok()) << space.status();
  std::vector<Program> points;
  Rng rng(3);
  for (int i = 0; i < count; ++i) {
    const auto point = i == 0 ? space->Default() : space->Sample(rng);
    const auto lowered = space->Lower(*point);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    points.push_back(*lowered);
  }
  return points;
}

std::shared_ptr<const TensorProgram> ProgramOf(const Operator& op, const std::string& shape,
                                               DType type) {
  return std::make_shared<const TensorProgram>(*op.Instantiate(*ParseShape(shape), type));
}

TEST(HalfTypes, CudaCompiles) {
  const absl::StatusOr<NvrtcInfo> nvrtc = FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  for (const tests::HalfWorkload& w : kWorkloads) {
    for (DType type : kHalves) {
      const auto program = w.Program(type);
      for (const char* arch : {"sm_75", "sm_90"}) {
        // Before sm_80 only the conversions differ.
        if (arch == std::string("sm_75") && w.op != std::string("matmul")) continue;
        const Target target = *FindTarget(arch);
        for (const Program& point : Points(program, target, 2)) {
          for (const KernelSource& kernel : GenerateSource(point, target, "")) {
            const auto binary =
                CompileCuda(kernel.source, "candidate.cu", arch + kernel.arch_suffix);
            ASSERT_TRUE(binary.ok()) << arch << binary.status() << kernel.source;
          }
        }
      }
    }
  }
}

class HalfTypesOnOpenCl : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenDevice("opencl:0");
    HEDDLE_NEEDS("pocl", opened.ok(), std::string(opened.status().message()));
    device_ = *std::move(opened);
  }

  std::vector<uint16_t> Run(const Program& point, const tests::HalfTensors& inputs) {
    return tests::RunOnce(*device_, point, inputs, [](const KernelSource& kernel) {
      const auto binary = CompileOpenCl("opencl:0", kernel);
      EXPECT_TRUE(binary.ok()) << binary.status() << kernel.source;
      return *binary;
    });
  }

  // Loads a point; `replacement` takes the place of the first `find` in each kernel's source.
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

  // A validator that has the naive program's results.
  std::unique_ptr<Validator> ValidatorOf(const std::shared_ptr<const TensorProgram>& program) {
    auto validator = Validator::Create(*device_, *program, {});
    EXPECT_TRUE(validator.ok()) << validator.status();
    const Program naive = *LowerSteps(program, NaiveSteps(*program));
    auto workspaces = (*validator)->AllocateWorkspaces(naive.workspaces);
    const absl::Status set = (*validator)->SetReference(*Loaded(naive), *workspaces);
    EXPECT_TRUE(set.ok()) << set;
    return *std::move(validator);
  }

  void ExpectRight(Validator& validator, const Program& point) {
    auto workspaces = validator.AllocateWorkspaces(point.workspaces);
    const Verdict verdict = validator.Validate(*Loaded(point), *workspaces, /*rounded_anew=*/{});
    EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.detail;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(HalfTypesOnOpenCl, EveryNumberIsConvertedThereAndBack) {
  const Operator op = ParseOperators("op halve(n) { in A[n]  out B[i: n] = A[i] * 0.5 }")->front();
  for (DType type : kHalves) {
    std::vector<uint16_t> all(0x10000);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    const auto program = ProgramOf(op, "n=65536", type);
    const auto points = Points(program, device_->info().target, 1);
    const std::vector<uint16_t> halved = Run(points[0], {all});
    for (size_t i = 0; i < all.size(); ++i) {
      const float value = HalfValue(type, all[i]), got = HalfValue(type, halved[i]);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(got)) << NameOf(type) << " " << i;
      } else {
        ASSERT_EQ(halved[i], HalfBits(type, value * 0.5)) << NameOf(type) << " " << value;
      }
    }
  }
}

TEST_F(HalfTypesOnOpenCl, PointsComputeTheDefinition) {
  for (const tests::HalfWorkload& w : kWorkloads) {
    for (DType type : kHalves) {
      SCOPED_TRACE(testing::Message() << w.op << " " << NameOf(type));
      const auto program = w.Program(type);
      TensorValues expected;
      const tests::HalfTensors inputs = tests::IntegersInto(*program, expected);
      const double allowed = std::string(w.op) == "softmax" ? 2 * UnitRoundoff(type) : 0;
      for (const Program& point : Points(program, device_->info().target, 2)) {
        const std::vector<uint16_t> got = Run(point, inputs);
        const std::vector<double>& want = expected.at(point.outputs[0]->name);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_LE(std::abs(HalfValue(type, got[i]) - want[i]), allowed * std::abs(want[i]))
              << i << ToString(point);
        }
      }
    }
  }
}

// What a sum computes whose loop ends one term early, or whose accumulator has 16 bits.
TEST_F(HalfTypesOnOpenCl, TheValidatorSeesALostTermAndRightPointsPass) {
  for (DType type : kHalves) {
    SCOPED_TRACE(NameOf(type));
    const auto program =
        ProgramOf(*FindOperator(BuiltinOperators(), "matmul"), "m=9,n=17,k=512", type);
    const std::unique_ptr<Validator> validator = ValidatorOf(program);
    const Program naive = *LowerSteps(program, NaiveSteps(*program));
    ExpectRight(*validator, naive);
    auto workspaces = validator->AllocateWorkspaces(naive.workspaces);
    const Verdict lost =
        validator->Validate(*Loaded(naive, "< 512", "< 511"), *workspaces, /*rounded_anew=*/{});
    EXPECT_EQ(lost.outcome, Outcome::kWrongAnswer) << lost.detail;
    for (const Program& point : Points(program, device_->info().target, 3)) {
      ExpectRight(*validator, point);
    }
  }
}

// Inputs, what lies between two kernels and outputs, each of a type of its own.
TEST_F(HalfTypesOnOpenCl, RightPointsOfMixedTypesPass) {
  const Operator op = ParseOperators(R"(op mixed(m, n, k) {
    in A[m, k]: bfloat16, B[k, n], C[n]: float16
    T[i: m, j: n]: float64 = sum(r: k) A[i, r] * B[r, j]
    U[i: m, j: n]: bfloat16 = max(T[i, j], 0) + C[j]
    S[i: m]: float16 = sum(r: n) U[i, r]
    out Y[i: m, j: n]: float16 = U[i, j] + S[i]
    out Z[i: m, j: n] = U[i, j] - S[i]
  })")
                          ->front();
  const auto program = ProgramOf(op, "m=7,n=9,k=512", DType::kFloat32);
  const std::unique_ptr<Validator> validator = ValidatorOf(program);
  const Program naive = *LowerSteps(program, NaiveSteps(*program));
  ExpectRight(*validator, naive);
  for (const Program& point : Points(program, device_->info().target, 3)) {
    ExpectRight(*validator, point);
  }
}

TEST_F(HalfTypesOnOpenCl, WhatCannotBeComparedIsRefused) {
  const Operator op = ParseOperators("op wide(n) { in A[n]: float64 out B[i: n] = A[i] }")->front();
  const auto program = ProgramOf(op, "n=8", DType::kFloat32);
  EXPECT_EQ(Validator::Create(*device_, *program, {}).status(),
            absl::InvalidArgumentError("A is float64: inputs and outputs are float32, tf32, "
                                       "float16 or bfloat16; float64 is for values between them"));
}

TEST(HalfTypes, WhatIsAllowedIsTwoRoundingsOfTheOutput) {
  const auto program =
      ProgramOf(*FindOperator(BuiltinOperators(), "matmul"), "m=4,n=4,k=64", DType::kBFloat16);
  const std::vector<SamplePoint> samples = {{0, 0, 2.0, 16.0}};
  const Allowed wide = AllowedOf(*program, InputKind::kNormal, DType::kFloat32, samples, 0);
  const Allowed half = AllowedOf(*program, InputKind::kNormal, DType::kBFloat16, samples, 0);
  EXPECT_EQ(wide.slack, 0);
  EXPECT_NEAR(half.absolute * (1 + half.slack * 2), wide.absolute + 2 * 0x1p-8 * 2, 1e-12);
  EXPECT_EQ(AllowedOf(*program, InputKind::kIntegers, DType::kBFloat16, samples, 1).absolute, 0);
}

TEST(HalfTypes, NormalInputsAre) {
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, largest = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = InputValue(1, 0, i, InputKind::kNormal);
    sum += value, squares += value * value, largest = std::max(largest, std::abs(value));
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_GT(largest, 3);
  EXPECT_LE(largest, 3.5);
}

}  // namespace
}  // namespace heddle::measure::half_types_test
