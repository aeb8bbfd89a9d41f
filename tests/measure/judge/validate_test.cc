#include "measure/judge/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "measure/device/backend.h"
#include "measure/device/drivers.h"
#include "measure/device/forwarding_device.h"
#include "measure/judge/timing.h"
#include "search_space/notation/notation.h"

namespace heddle::measure {
namespace {

using search_space::TensorProgram;

TensorProgram Program(const std::string& op, const std::map<std::string, int64_t>& shape) {
  auto found = search_space::FindOperator(search_space::BuiltinOperators(), op);
  EXPECT_TRUE(found.ok()) << found.status();
  auto program = found->Instantiate(shape, search_space::DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

TEST(InputValue, DependsOnNothingButItsArguments) {
  std::set<float> distinct;
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const float value = InputValue(1, 0, i, InputKind::kUniform);
    EXPECT_EQ(value, InputValue(1, 0, i, InputKind::kUniform));
    ASSERT_GE(value, -1);
    ASSERT_LT(value, 1);
    distinct.insert(value);
    sum += value;
    squares += value * value;
  }
  EXPECT_GT(distinct.size(), 0.98 * kCount);
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.01);
  EXPECT_NE(InputValue(1, 0, 5, InputKind::kUniform), InputValue(2, 0, 5, InputKind::kUniform));
  EXPECT_NE(InputValue(1, 0, 5, InputKind::kUniform), InputValue(1, 1, 5, InputKind::kUniform));
}

TEST(InputValue, KindsHaveTheirRanges) {
  std::set<float> integers;
  for (int i = 0; i < 1000; ++i) {
    integers.insert(InputValue(3, 0, i, InputKind::kIntegers));
    const float positive = InputValue(3, 0, i, InputKind::kPositive);
    EXPECT_GE(positive, 0.25f);
    EXPECT_LT(positive, 1.25f);
  }
  EXPECT_EQ(integers, (std::set<float>{-4, -3, -2, -1, 0, 1, 2, 3, 4}));
}

TEST(IsExactOnIntegers, KnowsWhichOperatorsRound) {
  EXPECT_TRUE(IsExactOnIntegers(Program("matmul", {{"m", 4}, {"n", 4}, {"k", 4}})));
  EXPECT_TRUE(IsExactOnIntegers(Program("gemm_relu_add", {{"m", 4}, {"n", 4}, {"k", 4}})));
  EXPECT_TRUE(IsExactOnIntegers(Program("transpose", {{"m", 4}, {"n", 4}})));
  EXPECT_FALSE(IsExactOnIntegers(Program("softmax", {{"m", 4}, {"n", 4}})));
  EXPECT_FALSE(IsExactOnIntegers(Program("layer_norm", {{"m", 4}, {"n", 4}})));
}

TEST(Tolerance, GrowsWithTheReductionAndSeesOneLostTerm) {
  TensorProgram small = Program("matmul", {{"m", 4}, {"n", 4}, {"k", 16}});
  TensorProgram large = Program("matmul", {{"m", 4}, {"n", 4}, {"k", 4096}});
  EXPECT_LT(Tolerance(small, 1), Tolerance(large, 1));
  // sum|a*b| of 4096 products of uniform values is about 1024, a typical product 0.25.
  EXPECT_LT(Tolerance(large, 1024), 0.25 / 4);
}

// A loss over 4096 x 4096 elements: the naive program adds up parts of 4096 terms (NaiveSteps).
TEST(Tolerance, IsKeptByFloatsAddedUpInParts) {
  constexpr int64_t kCount = int64_t{1} << 24, kPart = 4096;
  const auto operators = search_space::ParseOperators(
      "op loss(n) { in A[n], B[n] S[i: 1] = sum(r: n) (A[r] - B[r]) * (A[r] - B[r]) "
      "out L[i: 1] = S[i] / n }");
  ASSERT_TRUE(operators.ok()) << operators.status();
  const TensorProgram program =
      *operators->front().Instantiate({{"n", kCount}}, search_space::DType::kFloat32);
  double exact = 0;
  float plain = 0, parts = 0, part = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const float d =
        InputValue(1, 0, i, InputKind::kUniform) - InputValue(1, 1, i, InputKind::kUniform);
    exact += static_cast<double>(d) * d;
    plain += d * d;
    part += d * d;
    if (i % kPart == kPart - 1) parts += std::exchange(part, 0.0f);
  }
  EXPECT_LT(std::abs(parts - exact), 0.02 * Tolerance(program, exact));
  EXPECT_GT(std::abs(plain - exact), Tolerance(program, exact));
  EXPECT_LT(std::abs(plain - exact), LongestLoss(program, exact)) << "which the message says";
}

TEST(FastestPlausible, IsBelowTheRooflineAndAboveNothing) {
  search_space::Target target;
  target.peak_gflops = 60e3;
  target.memory_gbs = 3350;
  target.l2_bytes = 50 << 20;
  target.memory_bytes = int64_t{80} << 30;
  TensorProgram matmul = Program("matmul", {{"m", 1024}, {"n", 1024}, {"k", 1024}});
  // 2 n^3 operations at the peak take 35.8 us.
  EXPECT_NEAR(FastestPlausible(matmul, target, L2Policy::kWarm), 0.75 * 35.8e-6, 0.5e-6);
  TensorProgram add = Program("vector_add", {{"n", 1 << 24}});
  const double seconds = 3.0 * 4 * (1 << 24) / 3350e9;
  EXPECT_LT(FastestPlausible(add, target, L2Policy::kCold), seconds);
  EXPECT_GT(FastestPlausible(add, target, L2Policy::kCold), seconds / 3);
  EXPECT_LT(FastestPlausible(add, target, L2Policy::kWarm),
            FastestPlausible(add, target, L2Policy::kCold));
  target.peak_gflops = target.memory_gbs = 0;
  EXPECT_EQ(FastestPlausible(add, target, L2Policy::kCold), 0) << "nothing known, nothing refused";
}

// A real device whose comparisons can be tampered with.
class TamperedDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  absl::StatusOr<Difference> Compare(const DeviceBuffer& a, const DeviceBuffer& b, int64_t elements,
                                     double slack, search_space::DType type) override {
    if (before) std::exchange(before, nullptr)(const_cast<DeviceBuffer&>(b));
    auto found = ForwardingDevice::Compare(a, b, elements, slack, type);
    if (found.ok() && tamper) tamper(*found);
    return found;
  }
  absl::Status Download(const DeviceBuffer& from, void* to, int64_t bytes) override {
    ++downloads;
    return ForwardingDevice::Download(from, to, bytes);
  }

  std::function<void(Difference&)> tamper;    // of what every comparison finds
  std::function<void(DeviceBuffer&)> before;  // once, with what is compared with
  int downloads = 0;
};

// Hand-written kernels for window_sum, B[i] = A[i] + A[i+1] + A[i+2], in groups of 32.
class ValidateTest : public testing::Test {
 protected:
  static constexpr int64_t kOut = 96;  // and 98 inputs: no multiple of a float4

  void SetUp() override {
    auto opened = OpenDevice("opencl:0");
    if (!opened.ok()) GTEST_SKIP() << opened.status();
    device_ = std::make_unique<TamperedDevice>(*std::move(opened));
    program_ = Program("window_sum", {{"n", kOut + 2}, {"w", 3}});
    auto validator = Validator::Create(*device_, program_, {});
    ASSERT_TRUE(validator.ok()) << validator.status();
    validator_ = *std::move(validator);
  }
  void TearDown() override { validator_.reset(); }

  std::unique_ptr<LoadedProgram> Build(const std::string& body) {
    KernelSource kernel;
    kernel.launch = {
        "window", kOut / 32, 32, 0, {program_.inputs[0]->name, program_.stages[0].name()}};
    kernel.source =
        "__kernel __attribute__((reqd_work_group_size(32, 1, 1)))\n"
        "void window(__global float* a, __global float* b) {\n"
        "  int i = get_global_id(0);\n" +
        body + "\n}\n";
    auto binary = CompileOpenCl("opencl:0", kernel);
    EXPECT_TRUE(binary.ok()) << binary.status();
    auto loaded = device_->Load({{kernel.launch, *binary}});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }
  Verdict Try(const std::string& body, const std::set<std::string>& rounded_anew = {}) {
    if (!referenced_) {
      auto naive = Build("  b[i] = a[i] + a[i + 1] + a[i + 2];");
      absl::Status status = validator_->SetReference(*naive, workspaces_);
      EXPECT_TRUE(status.ok()) << status;
      referenced_ = true;
    }
    candidate_ = Build(body);
    return validator_->Validate(*candidate_, workspaces_, rounded_anew);
  }

  std::unique_ptr<TamperedDevice> device_;
  TensorProgram program_;
  std::unique_ptr<Validator> validator_;
  std::unique_ptr<LoadedProgram> candidate_;
  Workspaces workspaces_;
  bool referenced_ = false;
};

TEST_F(ValidateTest, AnotherOrderOfSummationIsRight) {
  Verdict verdict = Try("  b[i] = a[i + 2] + a[i + 1] + a[i];");
  EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.detail;
  EXPECT_LT(verdict.max_error, 1);
}

TEST_F(ValidateTest, WrongValuesAreNamed) {
  Verdict verdict = Try("  b[i] = a[i] + a[i + 1] + a[i + 2] + (i == 37 ? 1 : 0);");
  EXPECT_EQ(verdict.outcome, Outcome::kWrongAnswer);
  EXPECT_NE(verdict.detail.find("[37]"), std::string::npos) << verdict.detail;
  EXPECT_NE(verdict.detail.find("1 of 96"), std::string::npos) << verdict.detail;
  EXPECT_GT(verdict.max_error, 1);
  // Nothing of it stays behind.
  EXPECT_EQ(Try("  b[i] = a[i] + a[i + 1] + a[i + 2];").outcome, Outcome::kOk);
}

TEST_F(ValidateTest, ElementsThatAreNotWrittenAreSeen) {
  EXPECT_EQ(Try("  if (i != 50) b[i] = a[i] + a[i + 1] + a[i + 2];").outcome,
            Outcome::kWrongAnswer);
  // NaN as poison is hidden by fmax; the other poison is not.
  EXPECT_EQ(Try("  b[i] = fmax(b[i], a[i] + a[i + 1] + a[i + 2]);").outcome, Outcome::kWrongAnswer);
}

TEST_F(ValidateTest, ADifferentSecondRunIsSeen) {
  Verdict verdict =
      Try("  float s = a[i] + a[i + 1] + a[i + 2];\n"
          "  b[i] = b[i] == s && i == 3 ? s + 1 : s;");
  EXPECT_EQ(verdict.outcome, Outcome::kWrongAnswer);
  EXPECT_NE(verdict.detail.find("[3]"), std::string::npos) << verdict.detail;
}

// Where sums are made in an order that differs, another run may be rounded in another way, and has
// to be right by itself.
TEST_F(ValidateTest, ARunThatIsRoundedAnewIsJudgedByItself) {
  const std::string sum = "  float s = a[i] + a[i + 1] + a[i + 2];\n";
  const std::string rounded = sum + "  b[i] = b[i] == s ? nextafter(s, 10.0f) : s;";
  const std::set<std::string> output = {program_.stages[0].name()};
  EXPECT_EQ(Try(rounded).outcome, Outcome::kWrongAnswer);
  EXPECT_EQ(Try(rounded, {"another"}).outcome, Outcome::kWrongAnswer);
  EXPECT_EQ(Try(rounded, output).outcome, Outcome::kOk);
  EXPECT_EQ(validator_->CheckAfterTiming(false).outcome, Outcome::kOk);
  const Verdict verdict = Try(sum + "  b[i] = b[i] == s && i == 3 ? s + 1 : s;", output);
  EXPECT_EQ(verdict.outcome, Outcome::kWrongAnswer);
  EXPECT_NE(verdict.detail.find("run again"), std::string::npos) << verdict.detail;
  EXPECT_NE(verdict.detail.find("[3]"), std::string::npos) << verdict.detail;
}

TEST_F(ValidateTest, WritesOutsideAreIllegalAndReadsOutsideAreWrong) {
  Verdict verdict =
      Try("  b[i] = a[i] + a[i + 1] + a[i + 2];\n"
          "  if (i == 0) b[96] = 0;");
  EXPECT_EQ(verdict.outcome, Outcome::kIllegalAccess);
  EXPECT_NE(verdict.detail.find(program_.stages[0].name()), std::string::npos) << verdict.detail;
  EXPECT_EQ(Try("  b[i] = a[i] + a[i + 1] + a[i + 2] + 0 * a[i == 9 ? 98 : i];").outcome,
            Outcome::kWrongAnswer);
  // A candidate that changes its inputs spoils them for itself only.
  EXPECT_NE(Try("  b[i] = a[i] + a[i + 1] + a[i + 2]; a[i] = 7;").outcome, Outcome::kOk);
  EXPECT_EQ(Try("  b[i] = a[i] + a[i + 1] + a[i + 2];").outcome, Outcome::kOk);
}

TEST_F(ValidateTest, TimingLeavesTheOutputsAsTheyWere) {
  ASSERT_EQ(Try("  b[i] = a[i] + a[i + 1] + a[i + 2];").outcome, Outcome::kOk);
  std::vector<BufferSet> sets = validator_->TimingSets(workspaces_);
  EXPECT_GE(sets.size(), 2u);
  ASSERT_TRUE(validator_->PoisonTimingSets().ok());
  auto timing = TimeProgram(*device_, {candidate_.get(), sets}, {});
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_TRUE(timing->all_sets);
  Verdict verdict = validator_->CheckAfterTiming(timing->all_sets);
  EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.detail;
  EXPECT_EQ(validator_->CheckFirstSet().outcome, Outcome::kOk);
  // Another program's outputs are not the ones that were validated.
  auto other = Build("  b[i] = 0;");
  ASSERT_TRUE(device_->Run(*other, sets[0]).ok());
  EXPECT_EQ(validator_->CheckAfterTiming(true).outcome, Outcome::kWrongAnswer);
  EXPECT_EQ(validator_->CheckFirstSet().outcome, Outcome::kWrongAnswer);
}

// What is timed must have computed something: outputs are not what validation left there.
TEST_F(ValidateTest, ABatchThatRunsNothingIsSeen) {
  ASSERT_EQ(Try("  b[i] = a[i] + a[i + 1] + a[i + 2];").outcome, Outcome::kOk);
  const std::vector<BufferSet> sets = validator_->TimingSets(workspaces_);
  for (const bool runs_the_last : {false, true}) {
    ASSERT_TRUE(validator_->PoisonTimingSets().ok());
    for (size_t s = 0; s < sets.size(); ++s) {
      if (s + 1 < sets.size() || runs_the_last) {
        ASSERT_TRUE(device_->Run(*candidate_, sets[s]).ok());
      }
    }
    EXPECT_EQ(validator_->CheckAfterTiming(/*all_sets=*/false).outcome, Outcome::kOk);
    const Verdict verdict = validator_->CheckAfterTiming(/*all_sets=*/true);
    EXPECT_EQ(verdict.outcome, runs_the_last ? Outcome::kOk : Outcome::kWrongAnswer);
  }
  ASSERT_TRUE(validator_->PoisonTimingSets().ok());
  EXPECT_EQ(validator_->CheckFirstSet().outcome, Outcome::kWrongAnswer);
  EXPECT_EQ(validator_->CheckAfterTiming(false).outcome, Outcome::kWrongAnswer);
}

TEST_F(ValidateTest, OtherInputsHaveAnotherExpectation) {
  const std::string right = "  b[i] = a[i] + a[i + 1] + a[i + 2];";
  ASSERT_EQ(Try(right).outcome, Outcome::kOk);
  auto naive = Build(right), wrong = Build("  b[i] = a[i];");
  ASSERT_TRUE(validator_->ChangeInputs(2, *naive, workspaces_).ok());
  EXPECT_EQ(validator_->seed(), 2u);
  EXPECT_EQ(Try(right).outcome, Outcome::kOk);
  const Verdict verdict = Try("  b[i] = a[i] + a[i + 1];");
  EXPECT_EQ(verdict.outcome, Outcome::kWrongAnswer);
  EXPECT_NE(verdict.detail.find("seed 2"), std::string::npos) << verdict.detail;
  EXPECT_FALSE(validator_->ChangeInputs(3, *wrong, workspaces_).ok());
}

// What a group finds in its memory is not what the kernel before left there. A processor has such
// memory for each of its threads, and one that was busy when it was filled may run the groups
// after.
TEST_F(ValidateTest, LocalMemoryThatIsNotWrittenIsSeen) {
  const std::string sum = "  b[i] = a[i] + a[i + 1] + a[i + 2] + ";
  const std::string local = "  __local float s[32]; const int l = get_local_id(0);\n";
  EXPECT_EQ(Try(local + "  s[l] = 0; barrier(CLK_LOCAL_MEM_FENCE);" + sum + "s[31 - l];").outcome,
            Outcome::kOk);
  bool seen = false;
  for (int attempt = 0; attempt < 20 && !seen; ++attempt) {
    seen = Try(local + "  if (a[0] > 100.0f) s[l] = 0; barrier(CLK_LOCAL_MEM_FENCE);" + sum +
               "s[31 - l];")
               .outcome == Outcome::kWrongAnswer;
  }
  EXPECT_TRUE(seen);
}

TEST_F(ValidateTest, AWrongReferenceIsNotBelieved) {
  auto naive = Build("  b[i] = a[i] + a[i + 1];");
  absl::Status status = validator_->SetReference(*naive, workspaces_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("driver, compiler or generator is broken"),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(status.message().find("float32"), absl::string_view::npos) << status;
}

TEST_F(ValidateTest, AComparisonThatErrsIsNotBelieved) {
  auto naive = Build("  b[i] = a[i] + a[i + 1] + a[i + 2];");
  const std::function<void(Difference&)> errors[] = {
      [](Difference& found) { found = {}; },           // blind
      [](Difference& found) { found.elements += 1; },  // sees ghosts
      [](Difference& found) { found.elements /= 2; },  // sees every other one
      [](Difference& found) { found.distance /= 2; },  // belittles
      [](Difference& found) {
        if (found.elements == 1) found = {};
      },  // misses the last one
  };
  for (const auto& error : errors) {
    device_->tamper = error;
    absl::Status status = validator_->SetReference(*naive, workspaces_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("compares wrongly"), absl::string_view::npos) << status;
  }
  device_->tamper = nullptr;
  EXPECT_TRUE(validator_->SetReference(*naive, workspaces_).ok());
}

// An earlier candidate wrote over what the device holds of the reference.
TEST_F(ValidateTest, WhatAgreesWithTheHostsReferenceIsRight) {
  const std::string right = "  b[i] = a[i] + a[i + 1] + a[i + 2];";
  ASSERT_EQ(Try(right).outcome, Outcome::kOk);
  device_->before = [&](DeviceBuffer& reference) {
    EXPECT_TRUE(device_->Fill(reference, 0x42c80000).ok());  // 100
  };
  device_->downloads = 0;
  Verdict verdict = Try(right);
  EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.detail;
  EXPECT_LT(verdict.max_error, 1);
  EXPECT_EQ(device_->before, nullptr) << "written over";
  EXPECT_EQ(device_->downloads, 1);
  // It has been written afresh: nothing needs the host any more.
  EXPECT_EQ(Try(right).outcome, Outcome::kOk);
  EXPECT_EQ(device_->downloads, 1);
}

TEST_F(ValidateTest, WorkloadsThatDoNotFitAreRefusedBeforeAllocating) {
  TensorProgram huge = Program("vector_add", {{"n", int64_t{1} << 40}});
  absl::Status status = Validator::Create(*device_, huge, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("choose a smaller shape"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace heddle::measure
