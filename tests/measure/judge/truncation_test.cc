// What is allowed of sums on matrix units, which cut off what they add: as much as they lose, and
// less than a step of a sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "measure/device/compare.h"
#include "measure/judge/inputs.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/notation/notation.h"

namespace heddle::measure {
namespace {

using namespace search_space;

int64_t StepOf(DType type) { return type == DType::kTF32 ? 8 : 16; }

TensorProgram Product(DType type, DType of_result, const std::string& shape) {
  const std::string text = absl::StrCat(
      "op product(m, n, k) { in A[m, k], B[n, k] out C[i: m, j: n]: ", NameOf(of_result),
      " = sum(r: k) A[i, r] * B[j, r] }");
  return *ParseOperators(text)->front().Instantiate(*ParseShape(shape), type);
}

// Towards zero, to a multiple of the unit of a float32 of the size of `of`.
double CutOff(double value, double of) {
  if (of == 0) return value;
  const double unit = std::ldexp(1, std::ilogb(of) - 23);
  return std::trunc(value / unit) * unit;
}

// The largest error, in units of what is allowed, of sums that lack `lost` steps in the middle.
double WorstError(const Inputs& inputs, const TensorProgram& program, InputKind kind,
                  int64_t lost) {
  const auto sampled = inputs.Sample(kind);
  EXPECT_TRUE(sampled.has_value());
  const Allowed& allowed = sampled->allowed[0];
  const int64_t terms = program.shape.at("k"), columns = program.shape.at("n");
  const DType type = program.stages.back().tensor->dtype;
  const int64_t step_terms = StepOf(program.inputs[0]->dtype);
  double worst = 0;
  for (const SamplePoint& sample : sampled->samples) {
    const int64_t row = sample.offset / columns, column = sample.offset % columns;
    double sum = 0;
    for (int64_t r = 0; r < terms; r += step_terms) {
      if (r >= terms / 2 && r < terms / 2 + lost * step_terms) continue;
      double step = 0;
      for (int64_t q = r; q < r + step_terms; ++q) {
        step += inputs.At(kind, 0, row * terms + q) * inputs.At(kind, 1, column * terms + q);
      }
      sum = CutOff(sum + step, std::max(std::abs(sum), std::abs(step)));
    }
    const auto got = static_cast<float>(RoundTo(type, sum));
    const auto expected = static_cast<float>(sample.value);
    worst = std::max(worst, ErrorOf(Distance(got, expected, allowed.slack), allowed.absolute));
  }
  return worst;
}

TEST(Truncation, IsAllowedAndALostStepIsNot) {
  const Target target = *FindTarget("h100");
  for (DType type : {DType::kFloat16, DType::kBFloat16, DType::kTF32}) {
    for (DType of_result : {type, DType::kFloat32}) {
      const TensorProgram program = Product(type, of_result, "m=8,n=8,k=4096");
      const Inputs inputs(program, 1, Truncation(program, target));
      for (InputKind kind : {InputKind::kIntegers, InputKind::kNormal}) {
        SCOPED_TRACE(absl::StrCat(NameOf(type), " to ", NameOf(of_result), ", ", NameOf(kind)));
        const double right = WorstError(inputs, program, kind, 0);
        if (kind == InputKind::kIntegers) {
          EXPECT_EQ(right, 0);
        } else {
          EXPECT_LE(right, 1);
        }
        EXPECT_GT(WorstError(inputs, program, kind, 1), 1);
      }
    }
  }
}

// Of terms of one sign each step loses some of a growing sum.
TEST(Truncation, OutweighsRoundingInLongSums) {
  const TensorProgram program = Product(DType::kBFloat16, DType::kFloat32, "m=1,n=1,k=262144");
  const Inputs none(program, 1);
  EXPECT_GT(WorstError(none, program, InputKind::kPositive, 0), 1);
  const Inputs inputs(program, 1, Truncation(program, *FindTarget("h100")));
  EXPECT_LE(WorstError(inputs, program, InputKind::kPositive, 0), 1);
}

TEST(Truncation, IsOfMatrixUnitsAlone) {
  const TensorProgram half = Product(DType::kFloat16, DType::kFloat16, "m=8,n=8,k=4096");
  const TensorProgram single = Product(DType::kFloat32, DType::kFloat32, "m=8,n=8,k=4096");
  EXPECT_EQ(Truncation(half, *FindTarget("h100")), 0x1p-23 * (4096.0 / 16 + 8));
  const TensorProgram tf32 = Product(DType::kTF32, DType::kFloat32, "m=8,n=8,k=4096");
  EXPECT_EQ(Truncation(tf32, *FindTarget("h100")), 0x1p-23 * (4096.0 / 8 + 8));
  EXPECT_EQ(Truncation(tf32, *FindTarget("cpu")), 0);
  EXPECT_EQ(Truncation(half, *FindTarget("sm_70")), 0);
  EXPECT_EQ(Truncation(half, *FindTarget("cpu")), 0);
  EXPECT_EQ(Truncation(single, *FindTarget("h100")), 0);
}

}  // namespace
}  // namespace heddle::measure
