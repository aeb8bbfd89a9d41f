// Kernels over long rows that lose one term of one sum, on a real device: each is found out.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "measure/device/backend.h"
#include "measure/device/device.h"
#include "measure/device/drivers.h"
#include "measure/judge/validate.h"
#include "search_space/notation/notation.h"

namespace heddle::measure::lost_term_test {
namespace {

constexpr int64_t kRows = 4;

// What the one kernel of a test does is chosen by the number of groups that it is launched with.
enum Variant { kRight, kFirstFrom1, kFirstToLast, kSecondFrom1, kSecondToLast, kAnotherOrder };

constexpr char kHead[] = R"(
#define SUM(total, begin, end, term) {                     \
    float part[16] = {0};                                  \
    const int parts = variant == 5 ? 16 : 1;               \
    for (int r = begin; r < end; ++r) part[r % parts] += term; \
    for (int p = 0; p < parts; ++p) total += part[p];      \
  }
__kernel __attribute__((reqd_work_group_size(4, 1, 1)))
void rows()";
constexpr char kBegin[] = R"(__global float* Y) {
  const int variant = get_num_groups(0) - 1, i = get_local_id(0);
  if (get_group_id(0) > 0) return;
  const int begin1 = variant == 1, end1 = n - (variant == 2);
  const int begin2 = variant == 3, end2 = n - (variant == 4);
  __global const float* x = X + i * n;
  __global float* y = Y + i * n;
  float s = 0, v = 0;
)";

class LostTermTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    auto opened = OpenDevice("opencl:0");
    if (!opened.ok()) GTEST_SKIP() << opened.status();
    device_ = *std::move(opened);
  }

  void Start(const std::string& op, const std::string& body) {
    auto operators = search_space::ParseOperators(op);
    ASSERT_TRUE(operators.ok()) << operators.status();
    program_ = *operators->front().Instantiate({{"m", kRows}, {"n", GetParam()}},
                                               search_space::DType::kFloat32);
    auto validator = Validator::Create(*device_, program_, {});
    ASSERT_TRUE(validator.ok()) << validator.status();
    validator_ = *std::move(validator);
    kernel_.launch = {"rows", 1, kRows, 0, {}};
    kernel_.source = absl::StrCat("#define n ", GetParam(), kHead);
    for (const auto& input : program_.inputs) {
      kernel_.launch.arguments.push_back(input->name);
      absl::StrAppend(&kernel_.source, "__global const float* ", input->name, ", ");
    }
    kernel_.launch.arguments.push_back("Y");
    absl::StrAppend(&kernel_.source, kBegin, body, "}\n");
    auto binary = CompileOpenCl("opencl:0", kernel_);
    ASSERT_TRUE(binary.ok()) << binary.status();
    binary_ = *std::move(binary);
  }

  std::unique_ptr<LoadedProgram> Load(Variant variant) {
    KernelLaunch launch = kernel_.launch;
    launch.grid = 1 + variant;
    auto loaded = device_->Load({{launch, binary_}});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }

  void ExpectSeesLostTerms(const std::vector<Variant>& wrong) {
    auto right = Load(kRight);
    absl::Status status = validator_->SetReference(*right, workspaces_);
    ASSERT_TRUE(status.ok()) << status;
    for (Variant variant : {kRight, kAnotherOrder}) {
      auto candidate = Load(variant);
      const Verdict verdict = validator_->Validate(*candidate, workspaces_, /*rounded_anew=*/{});
      EXPECT_EQ(verdict.outcome, Outcome::kOk) << verdict.detail;
    }
    for (Variant variant : wrong) {
      auto candidate = Load(variant);
      const Verdict verdict = validator_->Validate(*candidate, workspaces_, /*rounded_anew=*/{});
      EXPECT_EQ(verdict.outcome, Outcome::kWrongAnswer) << "variant " << variant;
      // As the reference it is compared with the definition, on the same inputs.
      status = validator_->SetReference(*candidate, workspaces_);
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      ASSERT_TRUE(validator_->SetReference(*right, workspaces_).ok());
    }
  }

  std::unique_ptr<Device> device_;
  search_space::TensorProgram program_;
  std::unique_ptr<Validator> validator_;
  KernelSource kernel_;
  std::string binary_;
  Workspaces workspaces_;
};

TEST_P(LostTermTest, MeanLacksATerm) {
  Start("op row_mean(m, n) { in X[m, n] S[i: m] = sum(r: n) X[i, r] out Y[i: m] = S[i] / n }",
        "  SUM(s, begin1, end1, x[r])\n  Y[i] = s / n;\n");
  ExpectSeesLostTerms({kFirstFrom1, kFirstToLast});
}

TEST_P(LostTermTest, SoftmaxLacksATerm) {
  Start(
      "op rows(m, n) { in X[m, n] M[i: m] = max(r: n) X[i, r] "
      "E[i: m, j: n] = exp(X[i, j] - M[i]) S[i: m] = sum(r: n) E[i, r] "
      "out Y[i: m, j: n] = E[i, j] / S[i] }",
      "  float m = x[0];\n"
      "  for (int r = 1; r < n; ++r) m = max(m, x[r]);\n"
      "  SUM(s, begin1, end1, exp(x[r] - m))\n"
      "  for (int r = 0; r < n; ++r) y[r] = exp(x[r] - m) / s;\n");
  ExpectSeesLostTerms({kFirstFrom1, kFirstToLast});
}

// The mask's -3e38 must not make every error small.
TEST_P(LostTermTest, CausalSoftmaxLacksATerm) {
  Start(
      "op rows(m, n) { in X[m, n] Z[i: m, j: n] = select(j <= i + n / 2, X[i, j], -3.0e38) "
      "M[i: m] = max(r: n) Z[i, r] E[i: m, j: n] = exp(Z[i, j] - M[i]) "
      "S[i: m] = sum(r: n) E[i, r] out Y[i: m, j: n] = E[i, j] / S[i] }",
      "  const int live = i + n / 2 + 1;\n"
      "  float m = x[0];\n"
      "  for (int r = 1; r < live; ++r) m = max(m, x[r]);\n"
      "  SUM(s, begin1, live, exp(x[r] - m))\n"
      "  for (int r = 0; r < n; ++r) y[r] = r < live ? exp(x[r] - m) / s : 0;\n");
  ExpectSeesLostTerms({kFirstFrom1});
}

TEST_P(LostTermTest, LayerNormLacksATermOfMeanOrVariance) {
  Start(
      "op rows(m, n) { in X[m, n], G[n], B[n] S[i: m] = sum(r: n) X[i, r] "
      "D[i: m, j: n] = X[i, j] - S[i] / n V[i: m] = sum(r: n) D[i, r] * D[i, r] "
      "out Y[i: m, j: n] = D[i, j] * rsqrt(V[i] / n + 1e-5) * G[j] + B[j] }",
      "  SUM(s, begin1, end1, x[r])\n"
      "  const float mean = s / n;\n"
      "  SUM(v, begin2, end2, (x[r] - mean) * (x[r] - mean))\n"
      "  const float scale = rsqrt(v / n + 1e-5f);\n"
      "  for (int r = 0; r < n; ++r) y[r] = (x[r] - mean) * scale * G[r] + B[r];\n");
  ExpectSeesLostTerms({kFirstFrom1, kFirstToLast, kSecondFrom1, kSecondToLast});
}

TEST_P(LostTermTest, ExtremesLackATerm) {
  for (const std::string extreme : {"max", "min"}) {
    Start("op rows(m, n) { in B[m], X[m, n] T[i: m] = " + extreme +
              "(r: n) X[i, r] out Y[i: m] = T[i] + B[i] }",
          "  float t = x[begin1];\n"
          "  for (int r = begin1 + 1; r < end1; ++r) t = " +
              extreme + "(t, x[r]);\n  Y[i] = t + B[i];\n");
    ExpectSeesLostTerms({kFirstFrom1, kFirstToLast});
  }
}

TEST_P(LostTermTest, ThePlaceOfALargestLacksATerm) {
  Start("op rows(m, n) { in X[m, n] out Y[i: m] = argmax(r: n) X[i, r] }",
        "  int at = begin1;\n"
        "  for (int r = begin1 + 1; r < end1; ++r) if (x[r] > x[at]) at = r;\n"
        "  Y[i] = at;\n");
  ExpectSeesLostTerms({kFirstFrom1, kFirstToLast});
}

TEST_P(LostTermTest, AProductLacksATerm) {
  Start("op rows(m, n) { in X[m, n] out Y[i: m] = prod(r: n) X[i, r] }",
        "  float part[16];\n"
        "  const int parts = variant == 5 ? 16 : 1;\n"
        "  for (int p = 0; p < 16; ++p) part[p] = 1;\n"
        "  for (int r = begin1; r < end1; ++r) part[r % parts] *= x[r];\n"
        "  float t = 1;\n"
        "  for (int p = 0; p < 16; ++p) t *= part[p];\n"
        "  Y[i] = t;\n");
  ExpectSeesLostTerms({kFirstFrom1, kFirstToLast});
}

INSTANTIATE_TEST_SUITE_P(Lengths, LostTermTest, testing::Values(8192, 65536));

}  // namespace
}  // namespace heddle::measure::lost_term_test
