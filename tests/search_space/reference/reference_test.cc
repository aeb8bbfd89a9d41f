// The reference evaluator against values worked out here by plain loops: everything else is
// compared with it, so that nothing of it may be taken on trust.
#include "search_space/reference/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "search_space/notation/notation.h"
#include "tests/search_space/reference/reference_support.h"

namespace heddle::search_space {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// The one output of an operator on A = `a`, both of n elements.
std::vector<double> Map(const std::string& body, std::vector<double> a) {
  const std::string shape = "n=" + std::to_string(a.size());
  const TensorProgram program =
      Own("op f(n) { in A[n]  out B[i: n] = " + body + " }", shape.c_str());
  TensorValues values{{"A", std::move(a)}};
  EvaluateAll(program, values);
  return values.at("B");
}

// The value of a reduction over all of A.
double Reduce(const std::string& reduction, std::vector<double> a) {
  const std::string shape = "n=" + std::to_string(a.size());
  const TensorProgram program =
      Own("op f(n) { in A[n]  out B[i: 1] = " + reduction + "(r: n) A[r + i] }", shape.c_str());
  TensorValues values{{"A", std::move(a)}};
  EvaluateAll(program, values);
  return values.at("B").at(0);
}

TEST(EvaluateAll, PositionsAreThoseOfThePlainMeaning) {
  const TensorProgram program =
      Own("op f(m, n) { in X[m, n] out A[i: m] = argmax(r: n) X[i, r] "
          "out B[i: m] = argmin(r: n) X[i, r] }",
          "m=5,n=29");
  TensorValues values = Inputs(program);
  std::vector<double>& x = values.at("X");
  x[29 + 3] = kNan;
  for (size_t r = 0; r < 29; ++r) x[2 * 29 + r] = -kInf;  // all the same: the first
  x[3 * 29 + 28] = kInf;
  EvaluateAll(program, values);
  for (size_t i = 0; i < 5; ++i) {
    const auto row = x.begin() + static_cast<std::ptrdiff_t>(i * 29);
    const bool has_nan = i == 1;
    const auto greatest = has_nan ? 29 : std::max_element(row, row + 29) - row;
    const auto least = has_nan ? 29 : std::min_element(row, row + 29) - row;
    EXPECT_EQ(values.at("A")[i], static_cast<double>(greatest)) << i;
    EXPECT_EQ(values.at("B")[i], static_cast<double>(least)) << i;
  }
}

TEST(EvaluateAll, Matmul) {
  const TensorProgram program = Builtin("gemm_relu_add", "m=3,n=5,k=7");
  TensorValues values = Inputs(program);
  EvaluateAll(program, values);
  const auto &a = values.at("A"), &b = values.at("B"), &c = values.at("C"), &d = values.at("D");
  ASSERT_EQ(d.size(), 15u);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (size_t r = 0; r < 7; ++r) sum += a[i * 7 + r] * b[r * 5 + j];
      EXPECT_EQ(values.at("T")[i * 5 + j], sum);
      EXPECT_EQ(d[i * 5 + j], std::max(sum, 0.0) + c[i * 5 + j]);
    }
  }
}

TEST(EvaluateAll, ConvolutionWithPaddingAndStride) {
  constexpr int kCi = 2, kH = 5, kW = 7, kCo = 3, kKh = 3, kKw = 2, kStride = 2, kPad = 1;
  constexpr int kOh = (kH + 2 * kPad - kKh) / kStride + 1,
                kOw = (kW + 2 * kPad - kKw) / kStride + 1;
  const TensorProgram program = Builtin("conv2d", "n=1,ci=2,h=5,w=7,co=3,kh=3,kw=2,stride=2,pad=1");
  TensorValues values = Inputs(program);
  EvaluateAll(program, values);
  const auto &x = values.at("X"), &w = values.at("W"), &y = values.at("Y");
  ASSERT_EQ(y.size(), static_cast<size_t>(kCo * kOh * kOw));
  for (int o = 0; o < kCo; ++o) {
    for (int oy = 0; oy < kOh; ++oy) {
      for (int ox = 0; ox < kOw; ++ox) {
        double sum = 0;
        for (int c = 0; c < kCi; ++c) {
          for (int ry = 0; ry < kKh; ++ry) {
            for (int rx = 0; rx < kKw; ++rx) {
              const int iy = oy * kStride + ry - kPad, ix = ox * kStride + rx - kPad;
              if (iy < 0 || iy >= kH || ix < 0 || ix >= kW) continue;
              sum += x[(c * kH + iy) * kW + ix] * w[((o * kCi + c) * kKh + ry) * kKw + rx];
            }
          }
        }
        EXPECT_EQ(y[(o * kOh + oy) * kOw + ox], sum) << o << " " << oy << " " << ox;
      }
    }
  }
}

TEST(EvaluateAll, Softmax) {
  const TensorProgram program = Builtin("softmax", "m=2,n=4");
  TensorValues values = Inputs(program);
  EvaluateAll(program, values);
  for (size_t i = 0; i < 2; ++i) {
    double sum = 0;
    for (size_t j = 0; j < 4; ++j) sum += std::exp(values.at("X")[i * 4 + j]);
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(values.at("Y")[i * 4 + j], std::exp(values.at("X")[i * 4 + j]) / sum, 1e-15);
    }
  }
}

TEST(EvaluateAll, ReductionsKeepTheirFirstElementAndNan) {
  EXPECT_EQ(Reduce("sum", {1, 2, 4}), 7);
  EXPECT_EQ(Reduce("prod", {2, -3, 4}), -24);
  EXPECT_EQ(Reduce("max", {-3, -1, -2}), -1);  // not the 0 that an initial value might leave
  EXPECT_EQ(Reduce("min", {3, 1, 2}), 1);
  EXPECT_EQ(Reduce("max", {-kInf, -kInf}), -kInf);
  for (const char* reduction : {"sum", "prod", "max", "min"}) {
    for (size_t at : {0, 1, 2}) {
      std::vector<double> a = {1, 2, 3};
      a[at] = kNan;
      EXPECT_TRUE(std::isnan(Reduce(reduction, a))) << reduction << " " << at;
    }
  }
}

TEST(EvaluateAll, ScalarFunctions) {
  const double x = 0.75;
  const std::map<std::string, double> expected = {
      {"exp(A[i])", std::exp(x)},
      {"log(A[i])", std::log(x)},
      {"sqrt(A[i])", std::sqrt(x)},
      {"rsqrt(A[i])", 1 / std::sqrt(x)},
      {"tanh(A[i])", std::tanh(x)},
      {"erf(A[i])", std::erf(x)},
      {"sigmoid(A[i])", 1 / (1 + std::exp(-x))},
      {"abs(-A[i])", x},
      {"max(A[i], 0.5)", x},
      {"min(A[i], 0.5)", 0.5},
      {"pow(A[i], 3)", x * x * x},
      {"-A[i] + 2 * A[i] - A[i] / 4", x - x / 4},
      {"select(A[i] > 0.5 && A[i] < 1, 1, 2)", 1},
      {"select(A[i] >= 1 || !(A[i] != 0.75), 1, 2)", 1},
      {"select(A[i] == 1, 1, 2)", 2},
  };
  for (const auto& [body, value] : expected) EXPECT_NEAR(Map(body, {x})[0], value, 1e-15) << body;
  EXPECT_TRUE(std::isnan(Map("max(A[i], 1)", {kNan})[0]));
  EXPECT_TRUE(std::isnan(Map("min(1, A[i])", {kNan})[0]));
  EXPECT_EQ(Map("exp(A[i])", {-kInf})[0], 0);
}

TEST(EvaluateAll, IndicesDivideDownAndSelectIsLazy) {
  const std::vector<double> a = {10, 20, 30, 40, 50};
  EXPECT_EQ(Map("A[i / 2]", a), (std::vector<double>{10, 10, 20, 20, 30}));
  EXPECT_EQ(Map("A[(i + 3) % 5]", a), (std::vector<double>{40, 50, 10, 20, 30}));
  // Floor and not truncation: (i - 3) / 2 is -2, -1, -1, 0, 0.
  EXPECT_EQ(Map("A[(i - 3) / 2 + 2]", a), (std::vector<double>{10, 20, 20, 30, 30}));
  EXPECT_EQ(Map("select(i >= 1, A[i - 1], 0)", a), (std::vector<double>{0, 10, 20, 30, 40}));
  EXPECT_EQ(Map("A[i] + i * n", a), (std::vector<double>{10, 25, 40, 55, 70}));
}

}  // namespace
}  // namespace heddle::search_space
