// A kernel of which one element of one output is wrong is found out, whatever the operator.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "measure/codegen/codegen.h"
#include "measure/device/backend.h"
#include "measure/device/drivers.h"
#include "measure/device/forwarding_device.h"
#include "measure/judge/validate.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/suite_cases.h"

namespace heddle::measure::wrong_element_test {
namespace {

using search_space::Program;
using search_space::TensorProgram;

enum class Wrong : uint8_t { kNone, kNeighbour, kZero, kThreefold, kAThousandthMore };

// Spoils one element after each run: the first from the chosen one on that is not what it would
// become.
class SpoilingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  void Spoil(Wrong how, const std::string& output, int64_t element) {
    how_ = how;
    output_ = output;
    element_ = element;
    changed_ = false;
  }
  // Has it made an element another one? Where all are alike, not every way does.
  bool changed() const { return changed_; }

  absl::Status Run(LoadedProgram& program, const BufferSet& buffers) override {
    absl::Status status = ForwardingDevice::Run(program, buffers);
    if (!status.ok() || how_ == Wrong::kNone) return status;
    DeviceBuffer& buffer = *buffers.at(output_);
    changed_ = false;
    std::vector<float> values(static_cast<size_t>(buffer.bytes()) / sizeof(float));
    status = Download(buffer, values.data(), buffer.bytes());
    for (size_t i = 0; i < values.size() && !changed_; ++i) {
      const size_t at = (static_cast<size_t>(element_) + i) % values.size();
      const float right = values[at];
      switch (how_) {
        case Wrong::kNeighbour:
          values[at] = values[(at + 1) % values.size()];
          break;
        case Wrong::kZero:
          values[at] = 0;
          break;
        case Wrong::kThreefold:
          values[at] *= 3;
          break;
        default:
          values[at] *= 1.001F;
      }
      changed_ = values[at] != right;
    }
    return status.ok() ? Upload(buffer, values.data(), buffer.bytes()) : status;
  }

 private:
  Wrong how_ = Wrong::kNone;
  std::string output_;
  int64_t element_ = 0;
  bool changed_ = false;
};

// An operator's naive program on a device that spoils elements, with which it is compared.
struct Spoiled {
  SpoilingDevice& device;
  const Program& naive;
  std::function<Verdict()> validate;
};

void WithSpoiled(const search_space::Operator& op, const std::string& shape,
                 const std::function<void(const Spoiled&)>& body) {
  auto opened = OpenDevice("opencl:0");
  if (!opened.ok()) GTEST_SKIP() << opened.status();
  SpoilingDevice device(*std::move(opened));
  const auto program = std::make_shared<const TensorProgram>(
      *op.Instantiate(*search_space::ParseShape(shape), search_space::DType::kFloat32));
  const Program naive = *search_space::LowerSteps(program, search_space::NaiveSteps(*program));
  std::vector<KernelBinary> binaries;
  for (const KernelSource& kernel : GenerateSource(naive, device.info().target, "")) {
    auto binary = CompileOpenCl("opencl:0", kernel);
    ASSERT_TRUE(binary.ok()) << binary.status();
    binaries.push_back({kernel.launch, *std::move(binary)});
  }
  const auto loaded = device.Load(binaries);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto validator = Validator::Create(device, *program, {});
  ASSERT_TRUE(validator.ok()) << validator.status();
  Workspaces workspaces = *(*validator)->AllocateWorkspaces(naive.workspaces);
  const absl::Status reference = (*validator)->SetReference(**loaded, workspaces);
  ASSERT_TRUE(reference.ok()) << reference;
  const auto validate = [&] {
    return (*validator)->Validate(**loaded, workspaces, /*rounded_anew=*/{});
  };
  const Verdict right = validate();
  EXPECT_EQ(right.outcome, Outcome::kOk) << right.detail;
  body({device, naive, validate});
}

void ExpectIsFoundOut(const search_space::Operator& op, const std::string& shape) {
  WithSpoiled(op, shape, [](const Spoiled& spoiled) {
    int changed = 0;
    for (const auto& output : spoiled.naive.outputs) {
      for (const Wrong how : {Wrong::kNeighbour, Wrong::kZero, Wrong::kAThousandthMore}) {
        for (const int64_t at : {int64_t{0}, output->elements / 2, output->elements - 1}) {
          spoiled.device.Spoil(how, output->name, at);
          const Verdict verdict = spoiled.validate();
          if (!spoiled.device.changed()) continue;
          ++changed;
          EXPECT_EQ(verdict.outcome, Outcome::kWrongAnswer)
              << output->name << "[" << at << "], way " << static_cast<int>(how) << ", error "
              << verdict.max_error;
        }
      }
    }
    EXPECT_GT(changed, 0);
  });
}

class WrongElementTest : public testing::TestWithParam<tests::SmallCase> {};

TEST_P(WrongElementTest, IsFoundOut) {
  const auto op = search_space::FindOperator(tests::OperatorsOfSuite(), GetParam().op);
  ASSERT_TRUE(op.ok()) << op.status();
  ExpectIsFoundOut(*op, GetParam().shape);
}

INSTANTIATE_TEST_SUITE_P(Operators, WrongElementTest, testing::ValuesIn(tests::kSuiteCases),
                         [](const auto& info) { return std::string(info.param.op); });

// A mask's large number must excuse nothing: neither where it is part of an output, nor where it
// leaves nothing of a row.
class MaskedElementTest : public testing::TestWithParam<const char*> {};

TEST_P(MaskedElementTest, IsFoundOut) {
  const auto ops = search_space::ParseOperators(std::string("op masked(n) { ") + GetParam() + " }");
  ASSERT_TRUE(ops.ok()) << ops.status();
  ExpectIsFoundOut(ops->front(), "n=64");
}

INSTANTIATE_TEST_SUITE_P(
    Operators, MaskedElementTest,
    testing::Values("in X[n, n] out Y[i: n, j: n] = select(j <= i, X[i, j], -1.0e9)",
                    "in X[n, n] out Y[i: n, j: n] = select(j <= i, X[i, j] * 0.3, -3.0e38)",
                    "in X[n, n] out Y[i: n] = max(r: n) select(r < i, X[i, r] * 0.3, -3.0e38)",
                    "in Q[n, 16], K[n, 16] T[i: n, j: n] = sum(d: 16) Q[i, d] * K[j, d] "
                    "out Y[i: n, j: n] = select(j <= i && i < j + 4, T[i, j], -3.0e38)",
                    "in X[n, n] Z[i: n, j: n] = select(j < i, X[i, j], -3.0e38) * 0.125 "
                    "M[i: n] = max(r: n) Z[i, r] E[i: n, j: n] = exp(Z[i, j] - M[i]) "
                    "S[i: n] = sum(r: n) E[i, r] out Y[i: n, j: n] = E[i, j] / S[i]",
                    "in X[n, n] Z[i: n, j: n] = X[i, j] + select(j < i, 0.0, -1.0e9) "
                    "M[i: n] = max(r: n) Z[i, r] E[i: n, j: n] = exp(Z[i, j] - M[i]) "
                    "S[i: n] = sum(r: n) E[i, r] out Y[i: n, j: n] = E[i, j] / S[i]"));

// Element 5 is chosen by a comparison of two sums that rounding may turn: either number is right,
// and no third one. Of an output with fewer elements none may hang on such.
TEST(UncertainElementTest, IsRightEitherWayWhereSuchAreFew) {
  const auto ops = search_space::ParseOperators(
      "op chosen(n) { in X[n, 8]  S[i: n] = sum(r: 8) exp(X[i, r])  "
      "T[i: n] = S[i] * select(i == 5, 1.0000005, 2)  "
      "out Y[i: n] = select(S[i] < T[i], S[i] * S[i], S[i] * S[i] * 3) }");
  ASSERT_TRUE(ops.ok()) << ops.status();
  for (const auto& [shape, at, how, outcome] :
       {std::tuple("n=1000", 5, Wrong::kThreefold, Outcome::kOk),
        std::tuple("n=1000", 5, Wrong::kZero, Outcome::kWrongAnswer),
        std::tuple("n=1000", 6, Wrong::kThreefold, Outcome::kWrongAnswer),
        std::tuple("n=200", 5, Wrong::kThreefold, Outcome::kWrongAnswer)}) {
    WithSpoiled(ops->front(), shape,
                [at = at, how = how, outcome = outcome](const Spoiled& spoiled) {
                  spoiled.device.Spoil(how, "Y", at);
                  const Verdict verdict = spoiled.validate();
                  EXPECT_TRUE(spoiled.device.changed());
                  EXPECT_EQ(verdict.outcome, outcome) << verdict.detail;
                });
  }
}

}  // namespace
}  // namespace heddle::measure::wrong_element_test
