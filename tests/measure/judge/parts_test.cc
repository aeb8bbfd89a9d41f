// What is allowed of products whose float32 operand is split into parts of bfloat16: as much as
// these lose, and not what the first of them loses alone.
#include "search_space/ir/parts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "measure/device/compare.h"
#include "measure/judge/criteria.h"
#include "measure/judge/inputs.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"

namespace heddle::measure {
namespace {

using search_space::DType;
using search_space::SamplePoint;
using search_space::TensorProgram;

// `type`: of what lies between the products, such as ": bfloat16".
TensorProgram Products(const std::string& shape, const std::string& type,
                       DType dtype = DType::kBFloat16) {
  const std::string text = absl::StrReplaceAll(
      "op products(m, n, k, l) { in A[m, k], B[k, l], C[l, n] "
      "T[i: m, j: l]@ = sum(r: k) A[i, r] * B[r, j] "
      "out Y[i: m, j: n]: float32 = sum(r: l) T[i, r] * C[r, j] }",
      {{"@", type}});
  return *search_space::ParseOperators(text)->front().Instantiate(*search_space::ParseShape(shape),
                                                                  dtype);
}

// The largest error of what `computed` makes of the inputs of `program`, in units of what is
// allowed.
double WorstError(const TensorProgram& program, const TensorProgram& computed, InputKind kind) {
  const Inputs inputs(program, 1);
  const Sampled expected = *inputs.Sample(kind);
  const std::vector<SamplePoint> got = search_space::EvaluateSamples(
      computed, [&](int tensor, int64_t offset) { return inputs.At(kind, tensor, offset); },
      static_cast<int64_t>(expected.samples.size()), 1, int64_t{1} << 30, 1);
  EXPECT_EQ(got.size(), expected.samples.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.samples.size()); ++i) {
    EXPECT_EQ(got[i].offset, expected.samples[i].offset);
    const Allowed& allowed = expected.allowed[0];
    const double distance = Distance(static_cast<float>(got[i].value),
                                     static_cast<float>(expected.samples[i].value), allowed.slack);
    worst = std::max(worst, ErrorOf(distance, allowed.absolute));
  }
  return worst;
}

TEST(Parts, AreAllowedAndTheFirstAloneIsNot) {
  // Integers of more than 8 bits are sums of many products.
  for (const char* shape : {"m=16,n=16,k=1024,l=16", "m=16,n=16,k=1024,l=128"}) {
    const TensorProgram program = Products(shape, "");
    const auto parts = search_space::WithSplitOperand(program, "Y");
    ASSERT_TRUE(parts.ok()) << parts.status();
    const TensorProgram first = Products(shape, ": bfloat16");
    for (InputKind kind : {InputKind::kIntegers, InputKind::kPeaks, InputKind::kNormal}) {
      SCOPED_TRACE(absl::StrCat(shape, " ", NameOf(kind)));
      const double right = WorstError(program, **parts, kind);
      if (kind == InputKind::kIntegers) {
        EXPECT_EQ(right, 0);
      } else {
        EXPECT_LT(right, 0.5) << "which leaves room for what a kernel rounds";
      }
      EXPECT_GT(WorstError(program, first, kind), 1);
    }
  }
}

TEST(Parts, AreExactForIntegersUpToABound) {
  // Sums of 8192 products of up to 16.
  EXPECT_TRUE(IsExactOnIntegers(Products("m=1,n=1,k=8192,l=16", "")));
  EXPECT_FALSE(IsExactOnIntegers(Products("m=1,n=1,k=8193,l=16", "")));
  // What is not split is as large as it likes.
  EXPECT_TRUE(IsExactOnIntegers(Products("m=1,n=1,k=8193,l=16", "", DType::kFloat32)));
  EXPECT_TRUE(IsExactOnIntegers(Products("m=1,n=1,k=8193,l=16", "", DType::kFloat16)));
}

TEST(Parts, AreAllowedWhereThereAreSome) {
  const std::string shape = "m=16,n=16,k=64,l=16";
  const double plain = Tolerance(Products(shape, "", DType::kFloat32), 1);
  EXPECT_EQ(Tolerance(Products(shape, "", DType::kFloat16), 1), plain);
  EXPECT_EQ(Tolerance(Products(shape, ": bfloat16"), 1), plain);
  EXPECT_EQ(Tolerance(Products(shape, ""), 1), plain + search_space::kPartsLoss);
}

}  // namespace
}  // namespace heddle::measure
