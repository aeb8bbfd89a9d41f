// The reference evaluator against values worked out here by plain loops: everything else is
// compared with it, so that nothing of it may be taken on trust.
#include "search_space/notation/reference.h"

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

namespace heddle::search_space {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TensorProgram Builtin(const char* op, const char* shape) {
  return *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32);
}

TensorProgram Own(const std::string& text, const char* shape) {
  const auto ops = ParseOperators(text);
  EXPECT_TRUE(ops.ok()) << ops.status();
  const auto program = ops->front().Instantiate(*ParseShape(shape), DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// Multiples of 1/4 that repeat late: sums and products of a few are exact.
float Pattern(int input, int64_t offset) {
  return static_cast<float>((offset * 37 + input * 11 + offset / 7) % 23 - 11) / 4;
}

TensorValues Inputs(const TensorProgram& program) {
  TensorValues values;
  for (size_t t = 0; t < program.inputs.size(); ++t) {
    std::vector<double>& v = values[program.inputs[t]->name];
    for (int64_t i = 0; i < program.inputs[t]->elements; ++i) {
      v.push_back(Pattern(static_cast<int>(t), i));
    }
  }
  return values;
}

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

std::vector<SamplePoint> Sample(const TensorProgram& program, int64_t count, int64_t operations,
                                uint64_t seed = 1, int threads = 1) {
  return EvaluateSamples(program, Pattern, count, seed, operations, threads);
}

// Every operator: what is computed on demand is what is computed whole.
TEST(EvaluateSamples, AgreeWithWholeEvaluation) {
  const std::pair<const char*, const char*> cases[] = {
      {"vector_add", "n=37"},
      {"window_sum", "n=41,w=5"},
      {"transpose", "m=5,n=7"},
      {"matmul", "m=5,n=7,k=3"},
      {"batch_matmul", "b=2,m=3,n=5,k=4"},
      {"gemm_relu_add", "m=9,n=8,k=5"},
      {"conv2d", "n=1,ci=2,h=6,w=7,co=3,kh=3,kw=3,stride=2,pad=1"},
      {"conv2d_bias_relu", "n=1,ci=2,h=6,w=7,co=3,kh=3,kw=3,pad=1"},
      {"conv2d_nhwc", "n=1,ci=2,h=6,w=7,co=3,kh=3,kw=3,pad=1"},
      {"depthwise_conv2d", "n=1,c=3,h=6,w=7,kh=3,kw=3,pad=1"},
      {"softmax", "m=5,n=11"},
      {"layer_norm", "m=5,n=11"}};
  for (const auto& [op, shape] : cases) {
    SCOPED_TRACE(op);
    const TensorProgram program = Builtin(op, shape);
    TensorValues values = Inputs(program);
    EvaluateAll(program, values);
    const Stage& output = program.stages.back();
    std::set<int64_t> seen;
    for (const SamplePoint& point : Sample(program, 1 << 20, int64_t{1} << 40, 1, 3)) {
      ASSERT_EQ(point.output, 0);
      EXPECT_EQ(point.value, values.at(output.name()).at(static_cast<size_t>(point.offset)));
      EXPECT_GE(point.magnitude, std::abs(point.value));
      seen.insert(point.offset);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), output.tensor->elements) << "all of few";
  }
}

TEST(EvaluateSamples, MagnitudeIsTheSumOfAbsoluteProducts) {
  const TensorProgram program = Builtin("matmul", "m=2,n=3,k=9");
  for (const SamplePoint& point : Sample(program, 100, 1 << 30)) {
    const int64_t i = point.offset / 3, j = point.offset % 3;
    double sum = 0;
    for (int64_t r = 0; r < 9; ++r) {
      sum += std::abs(static_cast<double>(Pattern(0, i * 9 + r)) * Pattern(1, r * 3 + j));
    }
    EXPECT_DOUBLE_EQ(point.magnitude, sum) << point.offset;
  }
}

// Sums of products of two inputs have a loop of their own; multiplied by 1 they are summed up as
// others are.
TEST(EvaluateSamples, ProductsAreSummedUpAsOthersAre) {
  const auto sampled = [](const std::string& times) {
    const auto op = ParseOperators(
        "op f(n) { in A[n, 3, 2 * n], B[5, 3, n]: float32 "
        "out Y[i: n, j: 5] = sum(r: n, c: 3) A[i, c, 2 * r] * B[j, c, r]" +
        times + " }");
    EXPECT_TRUE(op.ok()) << op.status();
    return Sample(*op->front().Instantiate({{"n", 70}}, DType::kBFloat16), 100, 1 << 30);
  };
  const std::vector<SamplePoint> products = sampled(""), others = sampled(" * 1");
  ASSERT_EQ(products.size(), others.size());
  for (size_t p = 0; p < products.size(); ++p) {
    EXPECT_EQ(products[p].offset, others[p].offset);
    EXPECT_EQ(products[p].value, others[p].value);
    EXPECT_EQ(products[p].magnitude, others[p].magnitude);
  }
}

double LargestMagnitude(const TensorProgram& program) {
  double largest = 0;
  for (const SamplePoint& point : Sample(program, 4096, 1 << 30)) {
    largest = std::max(largest, point.magnitude);
  }
  return largest;
}

// Masks and padding that lose against a value round nothing: what their magnitude were would be
// allowed as an error.
TEST(EvaluateSamples, ALargeConstantThatLosesHasNoMagnitude) {
  const std::string softmax =
      "M[i: n] = max(r: n) Z[i, r]  E[i: n, j: n] = exp(Z[i, j] - M[i])  "
      "S[i: n] = sum(r: n) E[i, r]  out Y[i: n, j: n] = E[i, j] / S[i] }";
  const std::string head = "op f(n) { in X[n, n]  ";
  for (const char* masked : {
           "select(j <= i, X[i, j], -3.0e38)",
           "select(j <= i, X[i, j], -1.0e9)",
           "(X[i, j] + select(j <= i, 0, -1.0e9))",
           "select(j < i, X[i, j], -3.0e38)",  // nothing is left of the first row
           "select(j <= i, X[i, j] * X[j, i], -3.0e38)",
       }) {
    const TensorProgram program = Own(head + "Z[i: n, j: n] = " + masked + "  " + softmax, "n=40");
    EXPECT_LT(LargestMagnitude(program), 100) << masked;
  }
  const TensorProgram pool =
      Own("op f(n) { in X[n]  out Y[i: n] = max(r: 3) "
          "select(i + r >= 1 && i + r <= n, X[min(max(i + r - 1, 0), n - 1)], -3.0e38) }",
          "n=100");
  EXPECT_LT(LargestMagnitude(pool), 3) << "11 / 4 is the largest input";
}

// Rounding may decide which of two sums is the larger one.
TEST(EvaluateSamples, OfTwoThatRoundingMaySwapTheLargerMagnitudeCounts) {
  const TensorProgram near = Own(
      "op f(n) { in A[n]  S[i: n] = sum(r: 2) select(r < 1, A[i] * 100, 0)  D[i: n] = S[i] - S[i]  "
      "out B[i: n] = max(D[i], 0) }",
      "n=50");
  EXPECT_GT(LargestMagnitude(near), 500);
  const TensorProgram far = Own(
      "op f(n) { in A[n]  S[i: n] = sum(r: 2) select(r < 1, A[i] * 100, 0)  D[i: n] = S[i] - S[i]  "
      "out B[i: n] = max(D[i], 5000) }",
      "n=50");
  EXPECT_EQ(LargestMagnitude(far), 5000);
}

TEST(EvaluateSamples, DependOnTheSeedAndNotOnTheThreads) {
  const TensorProgram program = Builtin("matmul", "m=100,n=90,k=4");
  const auto offsets = [&](uint64_t seed, int threads) {
    std::vector<int64_t> all;
    for (const SamplePoint& point : Sample(program, 300, 1 << 30, seed, threads)) {
      all.push_back(point.offset);
    }
    return all;
  };
  EXPECT_EQ(offsets(1, 1), offsets(1, 4));
  EXPECT_NE(offsets(1, 1), offsets(2, 1));
  EXPECT_EQ(offsets(1, 1).size(), 300u);
  const std::vector<int64_t> all = offsets(3, 2);
  EXPECT_EQ(std::count(all.begin(), all.end(), 0), 1) << "the first element";
  EXPECT_EQ(std::count(all.begin(), all.end(), 100 * 90 - 1), 1) << "and the last";
}

// Points that take long are computed by several threads from the first ones on.
TEST(EvaluateSamples, ThoseThatTakeLongDependOnTheThreadsNeither) {
  const TensorProgram program = Own(
      "op f(n, k) { in A[n, k]  S[i: n] = sum(r: k) A[i, r]  out B[i: n] = S[i] * S[n - 1 - i] }",
      "n=70,k=200000");
  const auto all = [&](int threads) {
    std::vector<std::pair<int64_t, double>> found;
    for (const SamplePoint& point : Sample(program, 40, int64_t{1} << 26, 1, threads)) {
      found.emplace_back(point.offset, point.value);
    }
    return found;
  };
  EXPECT_GE(all(1).size(), 16u);
  EXPECT_EQ(all(1), all(4));
}

// One element of which every term is a sum, more of them than are remembered.
TEST(EvaluateSamples, ALongReductionIsTheSameForAnyThreads) {
  const TensorProgram program =
      Own("op f(m, n, k) { in A[m, k], B[n, k]  D[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]  "
          "S[z: 1] = sum(i: m, j: n) D[i, j]  out Y[z: 1] = S[z] / 2  "
          "out Z[z: 1] = max(i: m, j: n) D[i, j] - S[0] }",
          "m=1100,n=1000,k=8");
  double sum = 0, most = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < 1100; ++i) {
    for (int64_t j = 0; j < 1000; ++j) {
      double d = 0;
      for (int64_t r = 0; r < 8; ++r) {
        d +=
            static_cast<double>(Pattern(0, 8 * i + r)) * static_cast<double>(Pattern(1, 8 * j + r));
      }
      sum += d;
      most = std::max(most, d);
    }
  }
  for (const int threads : {1, 4}) {
    const auto points = Sample(program, 40, int64_t{1} << 26, 1, threads);
    ASSERT_EQ(points.size(), 2u);
    EXPECT_EQ(points[0].value, sum / 2);
    EXPECT_EQ(points[1].value, most - sum);
  }
}

// Reductions in parts have each of their terms once, however few these are for so many parts.
TEST(EvaluateSamples, PartsOfALongReductionHaveEachTermOnce) {
  for (const int terms : {64, 65, 66, 127, 130}) {
    const TensorProgram program =
        Own("op f(m, k) { in A[m, k], B[k]  D[i: m] = sum(r: k) A[i, r] * B[r]  "
            "out S[z: 1] = sum(i: m) D[i] }",
            ("m=" + std::to_string(terms) + ",k=200000").c_str());
    double sum = 0;
    for (int64_t i = 0; i < terms; ++i) {
      for (int64_t r = 0; r < 200000; ++r) {
        sum += static_cast<double>(Pattern(0, 200000 * i + r)) * static_cast<double>(Pattern(1, r));
      }
    }
    EXPECT_EQ(Sample(program, 1, int64_t{1} << 26).at(0).value, sum) << terms;
  }
}

// Later points know part of what they need, and are computed in the same order all the same.
TEST(EvaluateSamples, SeveralLongReductionsAreTheSameForAnyThreads) {
  const TensorProgram program =
      Own("op f(b, m, n, k) { in A[m, k], B[n, k], G[b]  "
          "D[i: m, j: n] = sum(r: k) A[i, r] * B[j, r] / 3  "
          "out S[z: b] = sum(i: m, j: n) D[i, j] / (G[z] * G[z] + 1) }",
          "b=20,m=400,n=300,k=70");
  const auto all = [&](int threads) {
    std::vector<std::pair<int64_t, double>> found;
    for (const SamplePoint& point : Sample(program, 20, int64_t{1} << 40, 1, threads)) {
      found.emplace_back(point.offset, point.value);
    }
    return found;
  };
  EXPECT_EQ(all(1).size(), 20u);
  EXPECT_EQ(all(1), all(3));
}

// Every element takes the whole of a long reduction: there are fewer samples then, but some.
TEST(EvaluateSamples, WorkIsBoundedButNeverToNothing) {
  const TensorProgram program = Builtin("matmul", "m=64,n=64,k=10000");
  EXPECT_EQ(Sample(program, 4096, 1).size(), 16u);
  const size_t some = Sample(program, 4096, int64_t{1} << 24).size();
  EXPECT_GT(some, 16u);
  EXPECT_LT(some, 4096u);
}

TEST(EvaluateSamples, EveryOutputHasItsSamples) {
  const TensorProgram program =
      Own("op f(n) { in A[n]  out B[i: n] = A[i] * 2  out C[i: n] = B[i] + 1 }", "n=1000");
  int counts[2] = {};
  for (const SamplePoint& point : Sample(program, 50, 1 << 30)) {
    ++counts[point.output];
    const double b = 2 * static_cast<double>(Pattern(0, point.offset));
    EXPECT_EQ(point.value, point.output == 0 ? b : b + 1);
  }
  EXPECT_EQ(counts[0], 50);
  EXPECT_EQ(counts[1], 50);
}

}  // namespace
}  // namespace heddle::search_space
